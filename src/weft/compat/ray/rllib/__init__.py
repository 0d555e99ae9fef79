"""`ray.rllib` of Ray 2.60 on `weft.rl`: configurations that are built call by call, and algorithms made of them.

Words that have a counterpart are mapped, those that tune RLlib itself are taken without effect, all others are refused
by name (`words`).
"""
