"""Texts that tokenizers trip over, and text to train small ones on."""

import inspect
import json
import textwrap

WORDS = [
    "Hello", "Hello world", "hello, world!", "The quick brown fox jumps over the lazy dog.", "I'm sure they'll say it's what we've done; he'd've gone.",
    "DON'T SHOUT, I'LL HEAR", "naive na\u00efve NAI\u0308VE", "r\u00e9sum\u00e9 re\u0301sume\u0301", "stra\u00dfe STRASSE", "\u0130stanbul \u0131s\u0131", "a", "A", "aa", "aaa", "aaaa", "aaaaaaaaaaaaaaaaa",
    "antidisestablishmentarianism", "supercalifragilisticexpialidocious", "word-with-hyphens", "under_score", "camelCaseWord", "HTTPServerError", "x.y.z", "e.g. i.e. etc.",
    "http://example.com/path?query=1&other=two#frag", "user@example.com", "C:\\Program Files\\Thing", "$100.00", "50%", "#hashtag @mention", "(parens) [brackets] {braces}", "\"quoted\" 'single' `tick`",
    "\u201ccurly\u201d \u2018quotes\u2019 \u2013 \u2014 \u2026", "!!!???...", "~!@#$%^&*()_+-=", "a+b=c", "x<y>z", "a/b\\c|d", "ends with space ", " starts with space", "  two  spaces  ",
]  # fmt: skip
CODE = [
    "def f(x):\n    return x + 1\n", "if (a == b) {\n\treturn c[i++];\n}\n", "for i in range(10):\n        print(i)\n\n\n", "SELECT * FROM t WHERE id = 42;", "<html>\n  <body class=\"x\">&amp;</body>\n</html>",
    "#include <stdio.h>\r\nint main(void) { return 0; }\r\n", "let v: Vec<u8> = vec![0; 16];", "{\"a\": [1, 2.5, null, true], \"b\": \"c\\n\"}", "\\frac{1}{2} \\alpha_{i}^{2}", "x = y if z else w  # comment", "0x1F 0b101 1e-9 3.14159",
    "a\tb\tc", "\t\t\tdeep", "line\n\nline\n\n\nline", "a\r\nb\rc", "trailing\n", "\n", "\n\n", "\n\n\n\n", "\t", "\r\n", " \n ", "\n \n", " \t \t ",
]  # fmt: skip
NUMBERS = [
    "0", "7", "12", "123", "1234", "12345", "123456", "1234567", "3.14", "1,000,000", "2024-11-30", "10:45", "v1.2.3", "a1b2c3", "1 2 3", "007", "99 bottles", "\u0661\u0662\u0663", "\u00bd \u00b2 \u2167", "1st 2nd 3rd", "12 34", "x2y", "100000000000000000000",
]  # fmt: skip
WORLD = [
    "\u4f60\u597d\uff0c\u4e16\u754c", "\u4e2d\u6587\u5206\u8bcd\u6d4b\u8bd5\u3002", "\u3053\u3093\u306b\u3061\u306f\u4e16\u754c", "\u30ab\u30bf\u30ab\u30ca\u3068\u6f22\u5b57", "\uc548\ub155\ud558\uc138\uc694 \uc138\uacc4", "\u1112\u1161\u11ab", "\u65e5\u672c\u8a9e mixed with English 123", "\u0417\u0434\u0440\u0430\u0432\u0441\u0442\u0432\u0443\u0439, \u043c\u0438\u0440!", "\u0393\u03b5\u03b9\u03b1 \u03c3\u03bf\u03c5 \u03ba\u03cc\u03c3\u03bc\u03b5",
    "\u0645\u0631\u062d\u0628\u0627 \u0628\u0627\u0644\u0639\u0627\u0644\u0645", "\u05e9\u05dc\u05d5\u05dd \u05e2\u05d5\u05dc\u05dd", "\u0646\u0635 mixed \u05e2\u05dd English", "\u0928\u092e\u0938\u094d\u0924\u0947 \u0926\u0941\u0928\u093f\u092f\u093e", "\u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35\u0e0a\u0e32\u0e27\u0e42\u0e25\u0e01", "\u12a0\u121b\u122d\u129b", "\u10e5\u10d0\u10e0\u10d7\u10e3\u10da\u10d8", "Ti\u1ebfng Vi\u1ec7t", "\u010ce\u0161tina \u0141\u00f3d\u017a", "\ufb01 ligature \uff21\uff22\uff23", "\u212b \u2126 \u00b5",
]  # fmt: skip
EMOJI = [
    "\U0001f600", "\U0001f600\U0001f603\U0001f604", "hi \U0001f44b\U0001f3fd there", "\U0001f468\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466", "\U0001f1e9\U0001f1ea\U0001f1eb\U0001f1f7", "\u2764\ufe0f \u270c", "1\ufe0f\u20e3", "\U0001d54f \U0001d4d0", "\U00020000\U0002a6d6", "\u00a9 \u2122 \u20ac \u00a3",
]  # fmt: skip
ODD = [
    "", "\x00", "a\x00b", "\x01\x02\x03", "\x1b[31mred\x1b[0m", "\x7f", "\u0080\u0085\u009f", "\u00a0nbsp\u00a0", "\u2003em\u2003space", "\u3000wide\u3000", "\u200bzero\u200bwidth", "\ufeffbom", "\ufffd", "\ue000private", "e\u0301\u0302\u0303", "\u0301alone", "\u202eoverride\u202c", "a\u2028b\u2029c", "\U0010ffff", "x" * 300, "ab" * 150, "\u00e9" * 40, "the " * 60,
]  # fmt: skip
SPACES = [" " * n for n in (1, 2, 3, 4, 5, 6, 7, 8, 9, 15, 16, 17, 24, 31, 32, 33, 48, 64, 65, 99, 100)] + ["a" + " " * n + "b" for n in (1, 2, 3, 4, 5, 8, 16, 30, 31, 32, 33, 62, 100)]
RUNS = ["\t" * n for n in (2, 3, 4, 8, 33)] + ["\n" * n for n in (3, 5, 8, 31, 32)] + ["-" * n for n in (2, 4, 16, 80)] + ["=" * 40, "." * 25, "a\n\n\n    b", "    indented\n        more\n", "  \n  \n"]
SENTENCES = [
    "It was already dark when the ferry came in, and nobody had thought of a lantern.", "She counted the crates twice: forty-one, not forty-two.", "Reading a file should never be an adventure.", "Those who measure first seldom argue for long.",
    "\u201cWell,\u201d he said, \u201cthat's that, isn't it?\u201d", "Prices rose by 3.5% in March; in April they didn't.", "WARNING: do NOT press the red button (see page 12).", "In theory, theory and practice agree.", "The mill's wheel hadn't turned since the autumn of 1987.",
    "Bring bread, cheese, two knives and whatever's left of the rope.", "Nothing is as permanent as a provisional arrangement.", "Every mountain looks steeper from the other side.", "A cold wind blew from the north-east all day long.", "What do you call a bird that can't sing?",
]  # fmt: skip

CORPUS = list(dict.fromkeys(WORDS + CODE + NUMBERS + WORLD + EMOJI + ODD + SPACES + RUNS + SENTENCES))
assert len(CORPUS) >= 200


def training_text():
    """Lines to train on: English, code, digits, and every character of the corpus."""
    lines = []
    for module in (json, textwrap, inspect):
        lines += inspect.getsource(module).splitlines()
    lines += [str(n) for n in range(0, 100000, 37)] + [f"in {n} and {n * 7}" for n in range(400)]
    for text in CORPUS:
        lines += text.splitlines() * 3
    return [line for line in lines if line.strip() and "\x00" not in line]
