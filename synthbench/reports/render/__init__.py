"""Tables and numbers as text and pictures."""


def visible(text: str, keep: str = "") -> str:
    """Replace invisible characters by their code points, as in ``U+202E``, except those in ``keep``.

    Control characters would act on a reader's terminal, and direction overrides change how text is read.
    """
    if text.isprintable():
        return text
    return "".join(sign if sign.isprintable() or sign in keep else f"U+{ord(sign):04X}" for sign in text)
