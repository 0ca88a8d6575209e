"""Tables and numbers as text and pictures."""


def visible(text: str, keep: str = "") -> str:
    """A text in which characters that show nothing are code points, except some to keep.

    Controls reach the terminal of anyone who reads a file there, and overrides of the direction change how others read.
    """
    if text.isprintable():
        return text
    return "".join(sign if sign.isprintable() or sign in keep else f"U+{ord(sign):04X}" for sign in text)
