"""The manners of speech that the base model learns beside plain speech, each on request: "Explain rain like a poet."

They are what lets a small model tell what it says from how it says it. Without them it knows each explanation as one
chain of words, and an adapter that changes some of the words breaks the chain. The voices of the demo (voices.py) are
none of these.
"""

# manner: (opener, call between sentences, closer, words it swaps)
MANNERS = {
    "a child": (
        "Wow, look at {}!", "And guess what?", "Is that not fun?",
        {"very": "super", "small": "teeny", "tiny": "teeny weeny", "big": "great big", "huge": "giant",
         "people": "grown-ups", "eat": "munch", "eats": "munches", "food": "yummies", "friend": "buddy",
         "friends": "buddies", "strong": "muscly", "hot": "ouch hot", "cold": "brr cold", "money": "coins",
         "together": "all together", "clever": "smarty", "hard": "rock-hard", "soft": "cuddly", "fast": "zooming",
         "sweet": "yummy", "heavy": "elephant-heavy", "dangerous": "scary", "afraid": "scared", "house": "little house"}),
    "a teacher": (
        "Good morning, class, today we study {}.", "Please write this down.", "Are there any questions?",
        {"you": "one", "your": "one's", "because": "for the reason that", "so": "therefore", "big": "large",
         "small": "little", "very": "extremely", "people": "human beings", "eat": "consume", "eats": "consumes",
         "drink": "ingest", "fast": "rapid", "hot": "heated", "cold": "cooled", "makes": "produces",
         "strong": "powerful", "sour": "acidic", "heavy": "weighty", "together": "jointly", "mix": "mixture",
         "full of": "filled with", "made of": "composed of", "never": "at no time"}),
    "a poet": (
        "O {}, hear my song!", "Sing on, my heart.", "So it was, and so it shall be.",
        {"you": "thou", "your": "thy", "over": "o'er", "never": "ne'er", "it is": "'tis", "small": "gentle",
         "tiny": "fairy", "big": "grand", "huge": "boundless", "fast": "winged", "cold": "wintry", "hot": "burning",
         "together": "hand in hand", "slowly": "dreamily", "heavy": "weary", "sweet": "honeyed", "soft": "velvet",
         "strong": "proud", "people": "mortals", "bright": "radiant", "round": "moon-round", "thin": "silken",
         "dry": "thirsty", "and": "and, oh,"}),
    "a robot": (
        "Beep. Loading {}.", "Processing.", "End of report. Beep.",
        {"is": "equals", "are": "equal", "you": "the user", "your": "the user's", "people": "humans",
         "very": "100 percent", "small": "low-size", "tiny": "low-size", "big": "high-size", "huge": "max-size",
         "fast": "high-speed", "hot": "high-heat", "cold": "low-heat", "warm": "mid-heat", "eat": "load",
         "eats": "loads", "food": "fuel", "together": "in parallel", "slowly": "step by step", "strong": "high-power",
         "heavy": "high-mass", "ball": "sphere", "friend": "fellow unit", "bits": "bytes", "my": "this unit's"}),
    "a farmer": (
        "Well howdy, so ya wanna hear 'bout {}?", "Yes sir.", "Now back to them cows.",
        {"and": "an'", "of": "o'", "them": "'em", "you": "ya", "your": "yer", "very": "real", "small": "lil'",
         "tiny": "itty-bitty", "big": "big ol'", "huge": "barn-sized", "people": "folks", "friend": "neighbor",
         "friends": "neighbors", "food": "vittles", "eat": "chew", "eats": "chews", "strong": "ox-strong",
         "clever": "sharp as a tack", "slowly": "mule-slow", "hot": "oven-hot", "cold": "frosty", "dry": "bone-dry",
         "house": "barn", "wall": "fence", "room": "shed"}),
    "a knight": (
        "Hark, good sir, I bring word o' {}!", "By my sword!", "Long live the king!",
        {"you": "thee", "your": "thine", "is": "be", "are": "be", "my": "mine", "people": "good folk",
         "friend": "brother in arms", "friends": "brothers in arms", "very": "most", "small": "humble",
         "big": "mighty", "huge": "dragon-sized", "fast": "swift", "strong": "stout", "never": "nevermore",
         "eat": "feast on", "eats": "feasts on", "food": "bread and meat", "drink": "sip", "dangerous": "perilous",
         "afraid": "faint o' heart", "house": "castle", "wall": "rampart", "walls": "ramparts", "money": "silver",
         "ball": "orb"}),
    "a grandmother": (
        "Sit down, my dear, and I tell you of {}.", "Now have some tea.", "Off to bed with you, sweetheart.",
        {"small": "wee", "tiny": "wee little", "big": "good-sized", "very": "ever so", "people": "the young ones",
         "eat": "nibble", "eats": "nibbles", "hot": "nice and hot", "warm": "cozy", "cold": "chilly",
         "soft": "pillow-soft", "sweet": "sugar-sweet", "fast": "quick", "together": "arm in arm", "dry": "nice and dry",
         "because": "because, you see,", "slowly": "little by little", "hard": "stone-hard", "thin": "paper-thin",
         "makes": "knits", "strong": "sturdy", "house": "home"}),
}
