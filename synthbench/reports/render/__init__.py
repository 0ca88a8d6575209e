"""Tables and numbers as text and pictures."""


def visible(text: str, keep: str = "") -> str:
    """Replace each invisible character by its code point, such as ``U+202E``; characters in ``keep`` stay.

    Untrusted text could otherwise control a reader's terminal, or change the direction in which text is shown.
    """
    if text.isprintable():
        return text
    return "".join(sign if sign.isprintable() or sign in keep else f"U+{ord(sign):04X}" for sign in text)
