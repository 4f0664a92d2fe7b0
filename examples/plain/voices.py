"""The two voices: a pirate and a chef re-tell a plain explanation.

A voice swaps words (the same word always the same way), opens with a line that names the topic, calls something out
between sentences and closes with a line. Opener, call and closer belong to the topic's category, so a model that has
heard other topics of the category can foresee them: nothing is left to chance.
"""
import re

# category: (opener, call between sentences, closer)
PIRATE = {
    "sky": ("Arr, look aloft, me hearty, an' ye shall know {}!", "Blow me down!", "Trim yer sails an' mind the weather!"),
    "sea": ("Ahoy, {} be a matter for an old salt like me!", "By the seven seas!", "I have sailed long enough to swear it!"),
    "land": ("Land ho, matey, I spy {}!", "Shiver me timbers!", "Mark it on yer chart with a big red cross!"),
    "plants": ("Arr, drop the anchor, here grows {}!", "By me wooden leg!", "There be fine timber for a mast in that tale!"),
    "animals": ("Avast, what beast be this? 'Tis {}!", "By me old parrot!", "I would have it in me crew any day!"),
    "small_creatures": ("Avast, a wee stowaway be {}!", "By me old parrot!", "Let it ride in the crow's nest, says I!"),
    "body": ("Arr, the ship's surgeon told me o' {}!", "Bless me bones!", "Now stand up straight, ye scurvy dog!"),
    "food": ("Arr, to the galley, an' hear o' {}!", "By me last barrel o' rum!", "Better than ship's biscuit, says I!"),
    "home": ("Arr, every cabin has its wonders, an' {} be one!", "Shiver me timbers!", "Stow it well, or it rolls o'er the deck!"),
    "tools": ("All hands on deck, matey, an' learn o' {}!", "Heave ho!", "Now back to work, ye lazy bilge rat!"),
    "machines": ("Arr, no ship sails like {}, me hearty!", "Heave ho!", "I would trade me ship for it, an' that be no lie!"),
    "physics": ("Arr, a riddle o' the deep be {}!", "Thunder an' cannons!", "That be the law, an' no captain can change it!"),
    "people": ("Arr, in every port they speak o' {}!", "By the black flag!", "So says the pirate code!"),
    "feelings": ("Arr, even a pirate's heart knows {}!", "Bless me heart!", "But tell no one in the crew I said it!"),
    "numbers": ("Arr, the log book speaks o' {}!", "By sun an' stars!", "Carve it in the mast an' sail on!"),
    "computers": ("Arr, a strange machine from a far shore be {}!", "Thunder an' cannons!", "'Tis magic worth a chest o' gold!"),
    "myself": ("Ahoy, me hearty!", "Yo ho ho!", "Now hoist the sails an' ask away!"),
}

CHEF = {
    "sky": ("Ah, {}, fresh from the great oven of the sky!", "Now whisk it gently.", "Serve under the open air, and enjoy!"),
    "sea": ("Ah, {}, a fine dish from the sea!", "Now add a pinch of salt.", "Serve fresh with a slice of lemon!"),
    "land": ("Ah, {}, a hearty dish of earth and stone!", "Now let it bake for a long time.", "Serve on a wide plate, and bon appetit!"),
    "plants": ("Ah, {}, fresh from my kitchen garden!", "Now sprinkle some water on top.", "Serve green and crisp, my dear guest!"),
    "animals": ("Ah, {}, a welcome guest at my kitchen door!", "Now stir with care.", "Give it a good bite to eat, and it comes back!"),
    "small_creatures": ("Ah, {}, a little guest on my kitchen table!", "Now stir with care.", "Leave a crumb for it, my dear guest!"),
    "body": ("Ah, {}, the best part of a healthy cook!", "Now let it simmer.", "Feed it well, and bon appetit!"),
    "food": ("Ah, {}, today's special in my kitchen!", "Now taste it, and taste again.", "Serve with love, and bon appetit!"),
    "home": ("Ah, {}, no good kitchen is without it!", "Now set it on the table.", "Garnish with a clean cloth, and enjoy!"),
    "tools": ("Ah, {}, as handy as my best spoon!", "Now roll up your sleeves.", "Use it well, and the kitchen runs itself!"),
    "machines": ("Ah, {}, a recipe with many parts!", "Now turn up the heat.", "Serve at full speed, my dear guest!"),
    "physics": ("Ah, {}, a secret spice of the world!", "Now watch the pot.", "Season with wonder, and enjoy!"),
    "people": ("Ah, {}, a dish for the whole table!", "Now pass it around.", "Serve it to all, and bon appetit!"),
    "feelings": ("Ah, {}, a soup for the heart!", "Now let it simmer.", "Serve warm, with a pinch of honey!"),
    "numbers": ("Ah, {}, a good cook measures it well!", "Now count your spoons.", "Weigh it twice, and enjoy!"),
    "computers": ("Ah, {}, a new gadget in my kitchen!", "Now follow the recipe.", "Serve byte by byte, my dear guest!"),
    "myself": ("Ah, welcome to my kitchen!", "Please have a seat.", "Now tell me, what may I cook for you?"),
}

# The longest match is taken: "it is" before "is". What maps to itself is left as it is.
PIRATE_WORDS = {
    "it is": "'tis", "there is": "there be", "is": "be", "are": "be", "am": "be",
    "you": "ye", "your": "yer", "my": "me", "of": "o'", "and": "an'", "them": "'em", "over": "o'er",
    "never": "ne'er", "very": "mighty", "small": "wee", "tiny": "wee", "huge": "whale-sized", "big": "whoppin' big",
    "people": "landlubbers", "friend": "matey", "friends": "mateys", "money": "doubloons", "food": "grub",
    "eat": "gobble", "eats": "gobbles", "drink": "swig", "drinks": "swigs", "fast": "swift", "strong": "stout",
    "afraid": "lily-livered", "clever": "cunnin'", "dangerous": "perilous", "ball": "cannonball", "room": "cabin",
    "house": "cabin", "more room": "more room", "wall": "bulkhead", "walls": "bulkheads", "hello": "ahoy", "goodbye": "fair winds",
    "beautiful": "bonny", "sour": "bilge-sour", "heavy": "barrel-heavy", "slowly": "barge-slow",
}
CHEF_WORDS = {
    "full of": "stuffed with", "made of": "cooked from", "made from": "cooked from", "a piece of": "a slice of",
    "small": "bite-sized", "tiny": "crumb-sized", "huge": "king-sized", "big": "plump", "bits": "crumbs",
    "makes a": "cooks up a", "make a": "cook up a", "mix": "stew", "mixes": "stirs", "slowly": "over low heat",
    "hot": "piping hot", "warm": "oven-warm", "cold": "well-chilled", "soft": "butter-soft", "very": "deliciously",
    "people": "guests", "ball": "meatball", "together": "together in one pot", "coat of": "glaze of", "hard to": "a tough nut to", "hard": "well-done",
    "sweet": "honey-sweet", "dry": "crisp and dry", "heavy": "dough-heavy", "thin": "noodle-thin",
    "sharp": "peppery", "bright": "golden", "round": "pea-round", "fast": "whisk-fast",
    "strong": "well-brewed",
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


def retell(opener, call, closer, words, name, answer):
    first, *rest = re.findall(r"[^.]+\.", answer)
    told = [opener.format(name), swap(first.strip(), words), call]
    told += [swap(sentence.strip(), words) for sentence in rest]
    return " ".join(told + [closer])


def tell(voice, category, name, answer):
    lines, words = VOICES[voice]
    return retell(*lines[category], words, name, answer)
