"""Checks that every component must pass, made from outside."""
