"""The dashboard: a process of its own that a node starts when somebody opens its address, and its pages.

It asks the node daemon (`engine.cluster.client`) what the pages want to know, and keeps a bounded history of events
while somebody looks. Nothing of it is loaded anywhere else.
"""
