"""The manners of speech that the base model learns beside plain speech, each on request: "Why does it rain? Answer like
a poet." They have the form of voices.py, but neither is among them.

They are what lets a small model tell what it says from how it says it. Without them it knows each explanation as one
chain of words, and an adapter that changes some of the words breaks the chain.
"""

# manner: (lines by how the question asks, words it swaps)
MANNERS = {
    "a child": (
        {"why": ("Oh, I know why!", "And guess what?", "That is why, hooray!"),
         "how": ("Look, it goes like this!", "And then, wow!", "That is how, so there!"),
         "what": ("Wow, look at this!", "And you know what?", "Is that not fun?"),
         "tell": ("Hee hee, I love {}!", "Wait, there is more!", "Can we play now?")},
        {"very": "super", "small": "teeny", "tiny": "teeny", "big": "great big", "people": "grown-ups", "eat": "munch",
         "eats": "munches", "together": "all together", "strong": "muscly", "hot": "ouchy hot", "it is": "it is so"}),
    "a teacher": (
        {"why": ("Good morning, class, here is the reason.", "Please write this down.", "This is the reason, class."),
         "how": ("Let us study how this works.", "Look at the board, please.", "This is how it works, class."),
         "what": ("Open your books, please.", "Listen with care.", "Are there any questions?"),
         "tell": ("Today our lesson is {}.", "Quiet in the back, please.", "This is your homework.")},
        {"you": "one", "your": "one's", "because": "for the reason that", "so": "therefore", "small": "little",
         "very": "extremely", "people": "human beings", "made of": "composed of", "fast": "rapid", "makes": "produces"}),
    "a poet": (
        {"why": ("O ask the stars why!", "Sing on, my heart.", "And that is why I weep."),
         "how": ("O sweet is the way!", "Hear the nightingale.", "And so it shall ever be."),
         "what": ("O wonder of wonders!", "My pen trembles.", "So ends my verse."),
         "tell": ("O {}, hear my song!", "Blow, gentle wind.", "Here I lay down my pen.")},
        {"you": "thou", "your": "thy", "over": "o'er", "never": "ne'er", "it is": "'tis", "small": "gentle",
         "tiny": "gentle", "very": "ever", "big": "grand", "people": "mortals", "is": "is, alas,"}),
    "a robot": (
        {"why": ("Beep. Searching for the reason.", "Processing.", "Reason found. Beep."),
         "how": ("Beep. Loading the steps.", "Next step.", "All steps done. Beep."),
         "what": ("Beep. Reading the data.", "More data.", "End of data. Beep."),
         "tell": ("Beep. Topic is {}.", "Please stand by.", "End of report. Beep.")},
        {"is": "equals", "are": "equal", "you": "the user", "your": "the user's", "people": "humans", "small": "mini",
         "tiny": "mini", "very": "maximum", "food": "fuel", "together": "in parallel", "them": "these units"}),
    "a farmer": (
        {"why": ("Well howdy, I reckon I know why!", "Yes sir.", "An' that there is why."),
         "how": ("Sit on the fence, I show ya how!", "Mind the cows.", "That there is how we do it."),
         "what": ("Well, butter my biscuit!", "Sure as corn grows.", "Now back to the barn."),
         "tell": ("So ya wanna hear 'bout {}?", "Hold your horses.", "Now git, the hay is waiting.")},
        {"and": "an'", "of": "o'", "them": "'em", "you": "ya", "your": "yer", "very": "mighty", "small": "lil'",
         "tiny": "lil'", "people": "folks", "food": "vittles", "together": "side by side"}),
    "a knight": (
        {"why": ("Good sir, I swear to tell thee why!", "By my sword!", "And that be why, long live the king!"),
         "how": ("Raise the gate, I tell thee how!", "To arms!", "And thus it be done!"),
         "what": ("Hark, I bring word!", "By my honor!", "So be it written!"),
         "tell": ("Kneel, and hear o' {}!", "By the round table!", "Farewell, I ride!")},
        {"is": "be", "are": "be", "you": "thee", "your": "thine", "very": "most", "people": "good folk",
         "strong": "stout", "fast": "swift", "small": "humble", "big": "mighty", "of": "o'"}),
    "a grandmother": (
        {"why": ("Come here, my dear, I know why.", "Have some more tea.", "And that is why, sweetheart."),
         "how": ("Let me show you, my dear.", "Mind your shoes.", "That is how my mother did it."),
         "what": ("Oh my, where are my glasses?", "Have a cookie.", "Now off to bed with you."),
         "tell": ("Sit down, we talk of {}.", "Where was I?", "You look just like your father.")},
        {"small": "wee", "tiny": "wee", "very": "ever so", "people": "young ones", "because": "because, you see,",
         "hot": "nice and hot", "warm": "cozy", "soft": "pillow-soft", "cold": "chilly", "together": "arm in arm"}),
    "a detective": (
        {"why": ("Aha, the motive!", "Here is a clue.", "The motive is clear, case closed."),
         "how": ("Let us follow the tracks.", "Look through the glass.", "That is how it was done."),
         "what": ("Nobody move!", "I have found a hair.", "The butler knew it."),
         "tell": ("I call it the case of {}.", "Note this, Watson.", "It was no accident.")},
        {"because": "since", "is": "is clearly", "are": "are clearly", "so": "hence", "makes": "causes",
         "together": "as a gang", "people": "suspects", "you": "you, Watson,", "small": "hidden", "very": "oddly"}),
    "a reporter": (
        {"why": ("Breaking news, we know why!", "Live from the scene:", "That is why, back to the studio."),
         "how": ("We were there and saw how!", "Our camera shows this:", "That is how it happened."),
         "what": ("Good evening and welcome!", "This just in:", "Stay with us."),
         "tell": ("Tonight we report on {}.", "We have a witness:", "And now the weather.")},
        {"people": "citizens", "very": "extremely", "and": "plus", "big": "record", "small": "minor", "tiny": "minor",
         "your": "your very own", "food": "supplies", "fast": "at top speed", "it is": "it is now"}),
    "a wizard": (
        {"why": ("The crystal ball tells why!", "Stir the cauldron!", "And that is why, abracadabra!"),
         "how": ("Behold the spell!", "A frog's leg more!", "And thus the spell is done!"),
         "what": ("Hocus pocus!", "By my beard!", "So the owl has spoken!"),
         "tell": ("I see {} in the smoke!", "Hush, black cat!", "Now let me vanish!")},
        {"you": "ye", "your": "yer", "and": "and lo,", "small": "pixie-sized", "tiny": "pixie-sized", "of": "of ye olde",
         "people": "elves", "very": "magically", "strong": "mighty", "over": "o'er", "them": "the lot"}),
}
