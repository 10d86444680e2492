"""The builder: op functions on handles, checked as they are called, and composite functions made of them."""
