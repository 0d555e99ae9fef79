"""Messages between nodes as bytes: what a link writes, and all that it reads."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from weft.engine.wire import link_messages as lm

_AnyMessage: TypeAlias = (
    lm.JoinCluster
    | lm.Members
    | lm.HeadAt
    | lm.HeadIs
    | lm.Hosted
    | lm.Registered
    | lm.ActorHere
    | lm.Mark
    | lm.Marked
    | lm.StartStore
    | lm.StoreUp
    | lm.PeerHello
    | lm.Report
    | lm.Leaving
    | lm.Ask
    | lm.Answer
    | lm.Call
    | lm.CallAnswer
    | lm.WatchProcess
    | lm.ProcessGone
    | lm.KillProcess
    | lm.JobInfo
    | lm.Guest
    | lm.WantPlace
    | lm.AskBundles
    | lm.BundlesSet
    | lm.DropBundles
    | lm.GroupNews
    | lm.Ping
    | lm.Pong
    | lm.Happened
    | lm.Imported
    | lm.Keep
    | lm.Kept
    | lm.Gone
    | lm.Free
    | lm.TakeOver
    | lm.TakenOver
    | lm.Moved
    | lm.FindObject
    | lm.Sources
    | lm.Pull
    | lm.Copied
    | lm.PullFailed
    | lm.Deposit
    | lm.Withdraw
    | lm.FoundAgain
    | lm.NodeLost
    | lm.AskLost
    | lm.Rehomed
    | lm.Inherit
    | lm.Inherited
    | lm.AskReady
    | lm.EstateSettled
    | lm.StoreAt
)
encode = msgspec.msgpack.Encoder().encode
decode = msgspec.msgpack.Decoder(_AnyMessage).decode
