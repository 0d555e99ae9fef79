"""A game server: a lobby seats players in rooms, and rooms are actors that survive being killed.

python examples/game_server.py

The game: a room's board is a line of cells with coins; players move and take what they step on. A room has exact state
(`checkpoint=`): its process is killed in mid-game, and no coin is lost or taken twice.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal

import weft

CELLS, COINS, SEATS = 60, 200, 3


@weft.remote(num_cpus=0, max_restarts=-1, max_task_retries=-1, checkpoint=25)
class Room:
    """The rules, and the only copy of the board. After a death its calls are replayed, each once."""

    def __init__(self, seed: int) -> None:
        self.board = [0] * CELLS
        for cell in random.Random(seed).choices(range(CELLS), k=COINS):
            self.board[cell] += 1
        self.players: dict[str, list[int]] = {}  # name -> [cell, coins]

    def enter(self, name: str) -> None:
        self.players.setdefault(name, [0, 0])

    def move(self, name: str, step: int) -> tuple[int, int]:
        """Where the player is then, and how many coins are left in the room."""
        player = self.players[name]
        player[0] = (player[0] + step) % CELLS
        player[1] += self.board[player[0]]
        self.board[player[0]] = 0
        return player[0], sum(self.board)

    def standings(self) -> dict[str, int]:
        return {name: coins for name, (_, coins) in self.players.items()}

    def process_id(self) -> int:
        return os.getpid()


@weft.remote(num_cpus=0)
class Lobby:
    """Async: thousands of players may wait here at once. A room opens when enough have come."""

    def __init__(self) -> None:
        self.rooms: list[weft.ActorHandle] = []
        self.waiting: list[asyncio.Future[weft.ActorHandle]] = []

    async def seat(self, name: str) -> weft.ActorHandle:
        self.waiting.append(place := asyncio.get_running_loop().create_future())
        if len(self.waiting) == SEATS:
            self.rooms.append(Room.remote(seed=len(self.rooms)))
            for seated in self.waiting:
                seated.set_result(self.rooms[-1])
            self.waiting = []
        room = await place
        await room.enter.remote(name)
        return room

    async def open_rooms(self) -> list[weft.ActorHandle]:
        return self.rooms


@weft.remote(num_cpus=0)
def play(name: str, seed: int, lobby: weft.ActorHandle) -> int:
    """A player: gets a seat, then moves until no coin is left. How many moves it took."""
    room, draw = weft.get(lobby.seat.remote(name)), random.Random(seed)
    moves, left = 0, COINS
    while left:
        _, left = weft.get(room.move.remote(name, draw.choice([1, 2, 3])))
        moves += 1
    return moves


def main(rooms: int = 3) -> list[dict[str, int]]:
    lobby = Lobby.remote()
    players = [play.remote(f"player {number}", number, lobby) for number in range(rooms * SEATS)]
    weft.wait(players)  # somebody's room is empty; the others may still play
    for room in weft.get(lobby.open_rooms.remote()):
        os.kill(weft.get(room.process_id.remote()), signal.SIGKILL)
    moves = sum(weft.get(players))
    standings = weft.get([room.standings.remote() for room in weft.get(lobby.open_rooms.remote())])
    for standing in standings:
        print(", ".join(f"{name} has {coins}" for name, coins in standing.items()))
        assert sum(standing.values()) == COINS, "a coin was lost or made"
    print(f"{moves} moves; every room was killed once, and no coin is missing")
    return standings


if __name__ == "__main__":
    main()
