"""Keras optimizers that touch only those rows of a table that a batch looked up.

A gradient of a table is sparse: rows and their values (`tf.IndexedSlices`). Keras' Adagrad and
Adam answer it by reading and writing the whole table and their state in every step. These update
the batch's rows alone, and treat every other variable as Keras does.

What they hold in memory besides the variables, in multiples of these: SGD nothing, with momentum
one; Adagrad one; Adam two, with amsgrad three.

Two options of Keras go through whole tables as before, and cost accordingly: `weight_decay`
(leave tables out with `exclude_from_weight_decay`) and `use_ema`.
"""

from training.optimizers.adagrad import Adagrad
from training.optimizers.adam import Adam
from training.optimizers.loss_scale import LossScaleOptimizer
from training.optimizers.sgd import SGD

__all__ = ["SGD", "Adagrad", "Adam", "LossScaleOptimizer"]
