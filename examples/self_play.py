"""AlphaZero in small: a network learns tic-tac-toe from nothing but games against itself. python examples/self_play.py
Each game is a task: a tree search that the newest network guides. The driver trains the network on what the search
found and how the games ended. What is printed is the network alone, without search, against random moves.
"""

import numpy as np

import weft

LINES = np.array([[0, 1, 2], [3, 4, 5], [6, 7, 8], [0, 3, 6], [1, 4, 7], [2, 5, 8], [0, 4, 8], [2, 4, 6]])
STONE, CELLS = np.eye(9), np.arange(9).reshape(3, 3)
SYMMETRIES = [np.rot90(side, turns).ravel() for side in (CELLS, CELLS.T) for turns in range(4)]


def evaluate(net, boards):
    """The odds of each move, the value for who moves, and the layers; who moves has the stones 1, the other -1."""
    inputs = np.concatenate([boards == 1, boards == -1], axis=-1)
    hidden = np.tanh(inputs @ net[0] + net[1])
    out = hidden @ net[2] + net[3]
    odds = np.exp(out[..., :9] - out[..., :9].max(axis=-1, keepdims=True)) * (boards == 0)
    return odds / np.maximum(odds.sum(axis=-1, keepdims=True), 1e-9), np.tanh(out[..., 9]), hidden, inputs


def outcome(board):  # for who moves next: -1 lost, 0 drawn, None not over
    return -1.0 if (board[LINES].sum(axis=1) == -3).any() else None if (board == 0).any() else 0.0


class Node:
    def __init__(self, board):
        self.board, self.end, self.odds, self.children = board, outcome(board), None, {}
        self.visits, self.sums = np.zeros((2, 9))

    def visit(self, net):
        """One walk down the tree, to a new position or an end. The value of it for who moves here."""
        if self.end is not None:
            return self.end
        if self.odds is None:
            self.odds, value, *_ = evaluate(net, self.board)
            return value
        explore = 1.5 * self.odds * np.sqrt(self.visits.sum() + 1) / (1 + self.visits)
        cell = np.where(self.board == 0, self.sums / np.maximum(self.visits, 1) + explore, -np.inf).argmax()
        value = -self.children.setdefault(cell, Node(-(self.board + STONE[cell]))).visit(net)
        self.visits[cell], self.sums[cell] = self.visits[cell] + 1, self.sums[cell] + value
        return value


@weft.remote
def play(net, seed, visits):
    """Each position of a game: the board, what the search would do there, and how it ended for who moved."""
    draw, board, moves = np.random.default_rng(seed), np.zeros(9), []
    while (end := outcome(board)) is None:
        root = Node(board)
        root.odds = 0.75 * evaluate(net, board)[0] + 0.25 * (board == 0) / (board == 0).sum()
        for _ in range(visits):
            root.visit(net)
        moves.append((board, root.visits / visits))
        board = -(board + STONE[draw.choice(9, p=root.visits / visits)])
    backwards = enumerate(reversed(moves), 1)
    return [(b[turn], odds[turn], end * (-1) ** ago) for ago, (b, odds) in backwards for turn in SYMMETRIES]


def learn(net, positions, draw, rate=0.1):
    for batch in np.array_split(draw.permutation(len(positions)), len(positions) // 32):
        boards, wanted, ended = (np.array(column) for column in zip(*(positions[n] for n in batch), strict=True))
        odds, value, hidden, inputs = evaluate(net, boards)
        error = np.column_stack([odds - wanted, (value - ended) * (1 - value**2)]) / len(batch)
        back = error @ net[2].T * (1 - hidden**2)
        gradients = [inputs.T @ back, back.sum(0), hidden.T @ error, error.sum(0)]
        net[:] = [array - rate * gradient for array, gradient in zip(net, gradients, strict=True)]


def not_lost(net, games=400):
    """The share of games against random moves that the network alone does not lose; it begins every other one."""
    draw, kept = np.random.default_rng(9), 0
    for turn in range(games):
        board = np.zeros(9)
        while (end := outcome(board)) is None:
            cell = draw.choice(np.flatnonzero(board == 0)) if turn % 2 else evaluate(net, board)[0].argmax()
            board, turn = -(board + STONE[cell]), turn + 1
        kept += end == 0 or turn % 2 == 1
    return kept / games


def main(rounds=15, games=60, visits=40):
    draw, recent = np.random.default_rng(0), []
    net = [draw.standard_normal((18, 64)) / 4, np.zeros(64), draw.standard_normal((64, 10)) / 30, np.zeros(10)]
    scores = [not_lost(net)]
    for number in range(rounds):
        shared = weft.put(net)
        for positions in weft.get([play.remote(shared, number * games + game, visits) for game in range(games)]):
            recent += positions
        learn(net, recent[-16_000:], draw)
        scores.append(not_lost(net))
        print(f"after {(number + 1) * games:4d} games: {scores[-1]:.1%} not lost; untrained: {scores[0]:.1%}")
    return scores


if __name__ == "__main__":
    main()
