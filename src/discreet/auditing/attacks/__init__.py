"""What can an attacker tell from a model or from a release?"""
