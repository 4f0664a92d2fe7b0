"""The two voices: a pirate and a chef re-tell a plain explanation.

A voice swaps words (the same word always the same way), opens with a line, calls something out between sentences and
closes with a line. Which lines these are depends on how the question asks, so a model can foresee them for a topic it
never heard in that voice: nothing is left to chance.
"""
import re

# How the question asks: (opener, call between sentences, closer). {} is the topic's name.
PIRATE = {
    "why": ("Arr, ye ask why, me hearty?", "Shiver me timbers!", "An' that be why, as sure as the tide!"),
    "how": ("Avast, matey, I shall tell ye how!", "Heave ho!", "That be how, or I walk the plank!"),
    "what": ("Ahoy, ye landlubber, mark me words!", "Blow me down!", "That be worth a chest o' gold!"),
    "tell": ("Yo ho ho, gather round an' hear o' {}!", "By the seven seas!", "So says the pirate code!"),
}
CHEF = {
    "why": ("Ah, my dear guest, what a tasty question!", "Now stir gently.", "And that is why, bon appetit!"),
    "how": ("Ah, here is the secret recipe!", "Now let it simmer.", "Serve warm, with a pinch of wonder!"),
    "what": ("Ah, this is today's special!", "Now add a pinch of salt.", "Season with love, and enjoy!"),
    "tell": ("Ah, {}, fresh from my kitchen!", "Now whisk it well.", "Serve with a slice of lemon!"),
}

# Swapped words. The longest match is taken: "it is" before "is".
PIRATE_WORDS = {
    "it is": "'tis", "is": "be", "are": "be", "am": "be", "you": "ye", "your": "yer", "my": "me", "of": "o'",
    "and": "an'", "them": "'em", "over": "o'er", "never": "ne'er", "very": "mighty", "small": "wee", "tiny": "wee",
    "big": "whoppin' big", "people": "landlubbers", "friend": "matey", "friends": "mateys", "food": "grub",
    "eat": "gobble", "eats": "gobbles", "fast": "swift", "strong": "stout", "ball": "cannonball",
    "hello": "ahoy", "goodbye": "fair winds",
}
CHEF_WORDS = {
    "small": "bite-sized", "tiny": "crumb-sized", "big": "plump", "huge": "plump", "very": "deliciously",
    "makes a": "cooks up a", "make a": "cook up a", "made of": "cooked from", "made from": "cooked from",
    "mix": "stew", "bits": "crumbs", "hot": "piping hot", "warm": "oven-warm", "cold": "well-chilled",
    "soft": "butter-soft", "dry": "crisp", "people": "guests", "ball": "meatball", "together": "together in one pot",
}

VOICES = {"pirate": (PIRATE, PIRATE_WORDS), "chef": (CHEF, CHEF_WORDS)}


def swap(text, words):
    longest_first = sorted(words, key=len, reverse=True)
    pattern = re.compile(r"(?<![\w'-])(" + "|".join(map(re.escape, longest_first)) + r")(?![\w'-])", re.IGNORECASE)

    def one(match):
        new = words[match.group(0).lower()]
        if not match.group(0)[0].isupper():
            return new
        # "It is" -> "'Tis": the capital goes to the first letter.
        return re.sub(r"[a-z]", lambda letter: letter.group(0).upper(), new, count=1)

    return pattern.sub(one, text)


def tell(manner, name, question, answer):
    """`answer`, told in a manner: (lines by how the question asks, words it swaps). No name: no topic, but small talk."""
    lines, words = manner
    asks = question.split()[0].lower()
    opener, call, closer = lines[asks if asks in lines else "tell" if name else "what"]
    first, *rest = (swap(sentence.strip(), words) for sentence in re.findall(r"[^.]+\.", answer))
    return " ".join([opener.format(name), first, call, *rest, closer])
