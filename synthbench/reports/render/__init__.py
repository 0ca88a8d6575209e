"""Tables and numbers as text and pictures."""


def visible(text: str, keep: str = "") -> str:
    """Turn invisible characters, except some to keep, into code points.

    Control characters would act on the terminal of a reader, and direction overrides change how text is read.
    """
    if text.isprintable():
        return text
    return "".join(sign if sign.isprintable() or sign in keep else f"U+{ord(sign):04X}" for sign in text)
