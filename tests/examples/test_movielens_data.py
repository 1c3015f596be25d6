import numpy as np
import polars as pl
import pytest

from examples import movielens_data as data

RATINGS, USERS, MOVIES = 120_000, 6_000, 2_000


@pytest.fixture(scope="module")
def generated():
    return data.generate(RATINGS, USERS, MOVIES, seed=3)


def test_the_frames_have_movielens_shape(generated):
    ratings, movies = generated
    assert ratings.schema == {
        "userId": pl.Int64,
        "movieId": pl.Int64,
        "rating": pl.Float64,
        "timestamp": pl.Int64,
    }
    assert movies.schema == {"movieId": pl.Int64, "genres": pl.List(pl.String)}
    assert (len(ratings), len(movies)) == (RATINGS, MOVIES)
    assert ratings["userId"].unique().sort().to_list() == list(range(1, USERS + 1))
    assert movies["movieId"].is_unique().all()
    assert movies["movieId"].max() > 10 * MOVIES  # sparse
    assert ratings["movieId"].is_in(movies["movieId"].implode()).all()
    assert not ratings.select("userId", "movieId").is_duplicated().any()


def test_stars_are_distributed_as_in_ml_25m(generated):
    ratings, _ = generated
    shares = ratings["rating"].value_counts(normalize=True).sort("rating")
    assert shares["rating"].to_list() == list(data.STARS)
    np.testing.assert_allclose(shares["proportion"], data.STAR_SHARES, atol=1e-3)


def test_popularity_is_skewed(generated):
    counts = generated[0]["movieId"].value_counts(sort=True)["count"]
    assert counts[: MOVIES // 100].sum() > 0.1 * RATINGS
    assert counts.median() < 0.5 * counts.mean()


def test_genres_are_one_to_six_and_some_lists_are_empty_or_null(generated):
    genres = generated[1]["genres"]
    lengths = genres.list.len()
    assert lengths.max() == 6
    assert 1 <= (lengths == 0).sum() <= 0.01 * MOVIES
    assert 1 <= genres.null_count() <= 0.01 * MOVIES
    named = set(genres.list.explode(keep_nulls=False, empty_as_null=False))
    assert named == set(data.GENRES)
    none = genres.filter(genres.list.contains(data.NO_GENRES))
    assert none.list.len().unique().to_list() == [1]


def test_a_seed_decides_everything(generated):
    again = data.generate(RATINGS, USERS, MOVIES, seed=3)
    other = data.generate(RATINGS, USERS, MOVIES, seed=4)
    for first, second, third in zip(generated, again, other, strict=True):
        assert first.equals(second)
        assert not first.equals(third)


def test_users_tell_more_than_popularity(generated):
    """The demo's model has to beat the baseline, so there must be something to learn."""
    train, valid = data.split(generated[0])
    baseline = data.popularity_auc(train, valid)
    liked = (pl.col("rating") > 3).cast(pl.Float64)
    users = train.group_by("userId").agg(user=(liked.sum() + 1.9) / (pl.len() + 3))
    movies = train.group_by("movieId").agg(movie=(liked.sum() + 6.2) / (pl.len() + 10))
    scored = valid.join(users, "userId", "left").join(movies, "movieId", "left").fill_null(0.62)
    both = data.auc(
        (scored["rating"] > 3).to_numpy(), (scored["user"] + scored["movie"]).to_numpy()
    )
    assert 0.6 < baseline < 0.75
    assert both > baseline + 0.08


def test_a_split_shuffles_and_loses_nothing(generated):
    ratings = generated[0]
    train, valid = data.split(ratings, 0.25, seed=1)
    assert len(valid) == RATINGS // 4
    assert not train["userId"].is_sorted()
    together = pl.concat([train, valid]).sort("userId", "movieId")
    assert together.equals(ratings)
    assert data.split(ratings, 0.25, seed=1)[0].equals(train)


def test_held_out_rows_hold_every_hard_case(generated):
    ratings, movies = generated
    _, valid = data.split(ratings)
    rows = data.held_out_rows(valid, ratings, movies, rows=1000)
    assert rows.schema == ratings.schema
    assert len(rows) == 1000
    assert (rows["userId"] > USERS).sum() == 50
    known = rows.join(movies, "movieId", "left", coalesce=False)
    assert known["movieId_right"].null_count() == 50
    known = known.drop_nulls("movieId_right")
    assert known["genres"].null_count() >= 50
    assert (known["genres"].list.len() == 0).sum() >= 50


def test_rows_that_the_table_does_not_offer_are_left_out(generated):
    ratings, movies = generated
    listed = movies.filter(pl.col("genres").list.len() > 0)
    rows = data.held_out_rows(data.split(ratings)[1], ratings, listed, rows=200)
    assert len(rows) == 200


def test_auc_is_the_share_of_pairs_in_order():
    rng = np.random.default_rng(0)
    labels, scores = rng.integers(0, 2, 80), rng.integers(0, 9, 80)
    better = scores[labels == 1][:, None] - scores[labels == 0]
    assert data.auc(labels, scores) == pytest.approx((better > 0).mean() + (better == 0).mean() / 2)
    with pytest.raises(data.DataError, match="both kinds"):
        data.auc(np.ones(3), np.ones(3))


def test_the_popularity_baseline_gives_unknown_movies_the_mean():
    train = pl.DataFrame({"movieId": [1, 1, 2, 2], "rating": [5.0, 4.0, 1.0, 2.0]})
    valid = pl.DataFrame({"movieId": [1, 3, 2], "rating": [5.0, 1.0, 0.5]})
    assert data.popularity_auc(train, valid) == 1.0
    assert data.popularity_auc(train, valid.with_columns(movieId=9)) == 0.5


def test_the_real_files_are_read(tmp_path):
    (tmp_path / "ratings.csv").write_text("userId,movieId,rating,timestamp\n1,7,4,1147880044\n")
    (tmp_path / "movies.csv").write_text(
        'movieId,title,genres\n7,"Three, Two (1995)",Action|Sci-Fi\n8,X,(no genres listed)\n'
    )
    ratings, movies = data.read(tmp_path)
    made_ratings, made_movies = data.generate(10, 5, 5)
    assert ratings.schema == made_ratings.schema
    assert movies.schema == made_movies.schema
    assert ratings.rows() == [(1, 7, 4.0, 1147880044)]
    assert movies["genres"].to_list() == [["Action", "Sci-Fi"], [data.NO_GENRES]]


def test_files_that_are_missing_or_of_another_kind_are_named(tmp_path):
    with pytest.raises(data.DataError, match=r"ratings\.csv of .* no such file\. Get it from"):
        data.read(tmp_path)
    (tmp_path / "ratings.csv").write_text("user,movieId,rating,timestamp\n1,7,4,0\n")
    with pytest.raises(data.DataError, match="missing: userId"):
        data.read(tmp_path)
    (tmp_path / "ratings.csv").write_text("userId,movieId,rating,timestamp\nme,7,4,0\n")
    with pytest.raises(data.DataError, match=r"as a CSV file\. Received: [^\n]*'userId'[^\n]*\Z"):
        data.read(tmp_path)


@pytest.mark.parametrize("ratings", [0, 51])
def test_more_ratings_than_fit_are_refused(ratings):
    with pytest.raises(data.DataError, match=f"between 1 and 50 ratings.*Received: {ratings}"):
        data.generate(ratings, users=10, movies=10)


@pytest.mark.parametrize("fraction", [0, 1, 1.5])
def test_a_fraction_out_of_range_is_refused(generated, fraction):
    with pytest.raises(data.DataError, match=f"Received: {fraction}"):
        data.split(generated[0], fraction)
