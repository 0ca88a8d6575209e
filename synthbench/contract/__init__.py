"""What every task and every mechanism must satisfy, checked from outside."""
