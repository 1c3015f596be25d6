"""MovieLens data for the demo: read from the real files, or generated in their shape.

The generated ratings resemble ml-25m in the properties that matter to a recommender: the uneven
counts of movies and users, the distribution of ratings, and the dependence of a rating on the
movie, the user, and the user's taste for genres. None of it is MovieLens' own data.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

Array = npt.NDArray[Any]

NO_GENRES = "(no genres listed)"
_NAMES = """Drama Comedy Thriller Romance Action Horror Documentary Crime Adventure Sci-Fi
Children Animation Mystery Fantasy War Western Musical Film-Noir IMAX"""
GENRES = (*_NAMES.split(), NO_GENRES)
# The approximate percentage of ml-25m's movies with each genre.
GENRE_PERCENTAGES = (41, 27, 14, 12, 12, 10, 9, 9, 7, 6, 5, 5, 5, 4, 3, 2, 2, 1, 1, 8)
GENRE_COUNTS = (0.42, 0.32, 0.17, 0.06, 0.02, 0.01)  # the share of movies with 1 .. 6 genres
STARS = tuple(half / 2 for half in range(1, 11))
STAR_SHARES = (0.016, 0.031, 0.016, 0.066, 0.050, 0.196, 0.127, 0.266, 0.088, 0.144)
LARGEST_MOVIE_ID = 209_171
NO_LIST_SHARE = 0.005  # the share of movies with an empty list of genres, and that with a null

# The weights of the parts of a rating's score. See `popularity_auc`.
MOVIE_WEIGHT, USER_WEIGHT, TASTE_WEIGHT, CHANCE_WEIGHT = 0.6, 0.9, 0.6, 0.8


class DataError(ValueError):
    """A missing or invalid file of the data set, or an argument out of range."""


def generate(
    ratings: int = 2_000_000, users: int = 162_541, movies: int = 59_047, seed: int = 0
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Generate ratings and movies of MovieLens' shape.

    The popularity of movies follows a Zipf law, the activity of users a log-normal one. A user rates
    a movie at most once, and at least one movie if there are enough ratings. 0.5% of the
    movies have an empty list of genres, 0.5% a null.

    Args:
        ratings: the number of ratings.
        users: the number of users, with the ids 1 .. users.
        movies: the number of movies; their ids are sparse, as in ml-25m.
        seed: equal seeds make equal data.

    Returns:
        `(ratings, movies)`: userId int64, movieId int64, rating float64 (0.5 .. 5.0), timestamp
        int64 (seconds), sorted by user and movie; and movieId int64, genres list[str].

    Raises:
        DataError: no ratings, or more than half of all pairs of a user and a movie.

    Example:
        >>> ratings, movies = generate(ratings=1000, users=100, movies=50)
        >>> ratings.columns
        ['userId', 'movieId', 'rating', 'timestamp']
    """
    if not 0 < ratings <= users * movies // 2:
        raise DataError(
            f"Expected between 1 and {users * movies // 2} ratings, half of all pairs of {users} "
            f"users and {movies} movies. Received: {ratings}."
        )
    rng = np.random.default_rng(seed)
    genres = _genre_matrix(rng, movies)
    user, movie = _pairs(rng, ratings, users, movies)
    score = _score(rng, user, movie, genres, users)
    limit = max(LARGEST_MOVIE_ID, 4 * movies)
    movie_ids = np.sort(rng.choice(limit, movies, replace=False)) + 1
    first = rng.integers(820_000_000, 1_570_000_000, users)
    frame = pl.DataFrame(
        {
            "userId": user + 1,
            "movieId": movie_ids[movie],
            "rating": _stars(score),
            "timestamp": first[user] + rng.integers(0, 5_000_000, ratings),
        }
    )
    return frame, pl.DataFrame({"movieId": movie_ids, "genres": _genre_lists(rng, genres)})


def _genre_matrix(rng: np.random.Generator, movies: int) -> Array:
    """Whether a movie has a genre: bool (movies, genres), 1 to 6 genres a movie."""
    shares = np.array(GENRE_PERCENTAGES) / 100
    counts = rng.choice(len(GENRE_COUNTS), movies, p=GENRE_COUNTS) + 1
    # The largest values of log(share) + Gumbel noise are a draw by share without replacement.
    keys = np.log(shares[:-1]) + rng.gumbel(size=(movies, len(shares) - 1))
    ranks = (-keys).argsort(axis=1).argsort(axis=1)
    chosen = np.zeros((movies, len(shares)), bool)
    chosen[:, :-1] = ranks < counts[:, None]
    chosen[rng.random(movies) < shares[-1]] = np.arange(len(shares)) == len(shares) - 1
    return chosen


def _genre_lists(rng: np.random.Generator, genres: Array) -> pl.Series:
    names = np.array(GENRES)
    lists: list[list[str] | None] = [names[row].tolist() for row in genres]
    without = rng.choice(len(lists), max(2, round(2 * NO_LIST_SHARE * len(lists))), replace=False)
    for place, movie in enumerate(without):
        lists[movie] = [] if place % 2 else None
    return pl.Series("genres", lists, dtype=pl.List(pl.String))


def _pairs(rng: np.random.Generator, ratings: int, users: int, movies: int) -> tuple[Array, Array]:
    """Distinct pairs of a user and a movie, sorted: two int64 arrays (ratings,)."""
    popularity = rng.permutation(1 / (np.arange(movies) + 20.0) ** 1.05)
    activity = rng.lognormal(0, 1.1, users)
    everyone = rng.permutation(users)[:ratings]
    pairs = everyone * movies + _draw(rng, popularity, len(everyone))
    while len(pairs) < ratings:
        wanted = ratings - len(pairs)
        drawn = _draw(rng, activity, 2 * wanted) * movies + _draw(rng, popularity, 2 * wanted)
        fresh = np.setdiff1d(drawn, pairs)
        chosen = rng.choice(fresh, min(wanted, len(fresh)), replace=False)
        pairs = np.concatenate([pairs, chosen])
    pairs.sort()
    return pairs // movies, pairs % movies


def _draw(rng: np.random.Generator, weights: Array, count: int) -> Array:
    """Indices drawn with replacement, with probability in proportion to weight: int64 (count,)."""
    bounds = np.cumsum(weights / weights.sum())[:-1]
    return np.searchsorted(bounds, rng.random(count))


def _score(rng: np.random.Generator, user: Array, movie: Array, genres: Array, users: int) -> Array:
    """The score of each rating: quality, kindness, taste and chance, float64 (ratings,)."""
    quality = rng.normal(size=len(genres))
    kindness = rng.normal(size=users)
    # Taste has two dimensions, so that a few ratings suffice to learn it.
    character = rng.normal(size=(users, 2))
    appeal = genres @ rng.normal(size=(genres.shape[1], 2))
    appeal /= np.sqrt(genres.sum(axis=1, keepdims=True))
    taste = (character[user] * appeal[movie]).sum(axis=1) / np.sqrt(2)
    score: Array = (
        MOVIE_WEIGHT * quality[movie]
        + USER_WEIGHT * kindness[user]
        + TASTE_WEIGHT * taste
        + CHANCE_WEIGHT * rng.normal(size=len(user))
    )
    return score


def _stars(score: Array) -> Array:
    """Half stars in ml-25m's shares, by the rank of the score."""
    bounds = np.quantile(score, np.cumsum(STAR_SHARES)[:-1])
    stars: Array = np.array(STARS)[np.searchsorted(bounds, score)]
    return stars


def read(folder: str | Path) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Read `ratings.csv` and `movies.csv` of ml-25m, in the form that `generate` returns.

    Raises:
        DataError: a file or a column is missing.

    Example:
        >>> ratings, movies = read("ml-25m")
    """
    folder = Path(folder)
    ratings = _read_csv(
        folder / "ratings.csv",
        {"userId": pl.Int64, "movieId": pl.Int64, "rating": pl.Float64, "timestamp": pl.Int64},
    )
    movies = _read_csv(folder / "movies.csv", {"movieId": pl.Int64, "genres": pl.String})
    return ratings, movies.with_columns(pl.col("genres").str.split("|"))


def _read_csv(path: Path, columns: dict[str, Any]) -> pl.DataFrame:
    try:
        frame = pl.read_csv(path, schema_overrides=columns)
    except FileNotFoundError as error:
        raise DataError(
            f"Expected {path} of MovieLens, ml-25m or later. Received: no such file. "
            "Get it from https://grouplens.org/datasets/movielens."
        ) from error
    except (OSError, pl.exceptions.PolarsError) as error:
        reason = str(error).splitlines()[0]
        raise DataError(f"Expected {path} as a CSV file. Received: {reason}") from error
    missing = [name for name in columns if name not in frame.columns]
    if missing:
        raise DataError(
            f"Expected the columns {', '.join(columns)} in {path}. "
            f"Received: {', '.join(frame.columns)}; missing: {', '.join(missing)}."
        )
    return frame.select(list(columns))


def split(
    ratings: pl.DataFrame, valid_fraction: float = 0.1, seed: int = 0
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Shuffle the ratings and split them into `(train, valid)`.

    Args:
        ratings: any frame.
        valid_fraction: the share of rows held out, above 0 and below 1.
        seed: equal seeds make equal splits.

    Raises:
        DataError: a fraction out of range.

    Example:
        >>> train, valid = split(ratings, valid_fraction=0.2)
    """
    if not 0 < valid_fraction < 1:
        raise DataError(f"Expected a valid_fraction between 0 and 1. Received: {valid_fraction}.")
    shuffled = ratings[np.random.default_rng(seed).permutation(len(ratings))]
    held_out = round(valid_fraction * len(ratings))
    return shuffled[held_out:], shuffled[:held_out]


def held_out_rows(
    valid: pl.DataFrame,
    ratings: pl.DataFrame,
    movies: pl.DataFrame,
    rows: int = 10_000,
    seed: int = 0,
) -> pl.DataFrame:
    """Rows that prove a served model: held-out ratings, and values that training never saw.

    One twentieth of the rows has a user without ratings, another a movie outside the table, another
    a movie with an empty list of genres, and another a movie with a null; the last two only if
    the table has such movies. The rows are in random order.

    Args:
        valid: the held-out ratings.
        ratings: all ratings, which show the existing users.
        movies: the table of movies.
        rows: the number of rows, drawn from `valid` with replacement.
        seed: equal seeds give equal rows.

    Returns:
        A frame with the columns of `valid`.

    Example:
        >>> held_out_rows(valid, ratings, movies, rows=10_000).height
        10000
    """
    rng = np.random.default_rng(seed)
    frame = valid[rng.integers(0, len(valid), rows)]
    user, movie = (frame[name].to_numpy().copy() for name in ("userId", "movieId"))
    count = max(1, rows // 20)
    parts = [slice(start, start + count) for start in range(0, 4 * count, count)]
    user[parts[0]] = ratings["userId"].to_numpy().max() + 1 + np.arange(len(user[parts[0]]))
    movie[parts[1]] = movies["movieId"].to_numpy().max() + 1 + np.arange(len(movie[parts[1]]))
    empty, null = pl.col("genres").list.len() == 0, pl.col("genres").is_null()
    for part, condition in zip(parts[2:], (empty, null), strict=True):
        such = movies.filter(condition)["movieId"].to_numpy()
        if len(such):
            movie[part] = rng.choice(such, len(movie[part]))
    changed = frame.with_columns(userId=pl.Series(user), movieId=pl.Series(movie))
    return changed[rng.permutation(rows)]


def popularity_auc(train: pl.DataFrame, valid: pl.DataFrame) -> float:
    """Area under the ROC curve of predicting from the movie alone whether a rating is above 3.

    A movie's score is the share of its ratings in `train` above 3, smoothed towards the overall
    share with the weight of ten ratings.

    Args:
        train: ratings to learn from: movieId and rating.
        valid: ratings to evaluate on.

    Example:
        >>> round(popularity_auc(train, valid), 2)
        0.66
    """
    liked = (pl.col("rating") > 3).cast(pl.Float64)
    prior = float(train.select(liked.mean()).item())
    shares = train.group_by("movieId").agg(score=(liked.sum() + 10 * prior) / (pl.len() + 10))
    scored = valid.join(shares, on="movieId", how="left")
    return auc((scored["rating"] > 3).to_numpy(), scored["score"].fill_null(prior).to_numpy())


def auc(labels: Array, scores: Array) -> float:
    """The exact area under the ROC curve: the Mann-Whitney statistic over all pairs.

    Args:
        labels: 0 or 1, shape (N,).
        scores: numbers, shape (N,); equal scores count half.

    Raises:
        DataError: labels of one kind only.

    Example:
        >>> auc(np.array([0, 1, 1]), np.array([0.2, 0.1, 0.9]))
        0.5
    """
    positive = np.asarray(labels).astype(bool).reshape(-1)
    count = int(positive.sum())
    if count in (0, len(positive)):
        raise DataError(f"Expected labels of both kinds. Received: {count} of {len(positive)} 1s.")
    ranks = pl.Series(np.asarray(scores).reshape(-1)).rank("average").to_numpy()
    above = ranks[positive].sum() - count * (count + 1) / 2
    return float(above / (count * (len(positive) - count)))
