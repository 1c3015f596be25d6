"""Keras optimizers that update only the rows of a table that a batch looked up.

A gradient of a table is sparse: rows and their values (`tf.IndexedSlices`). Keras' Adagrad and Adam
then read and write the whole table and its state in every step. The optimizers here update the
batch's rows alone, and treat every other variable as Keras does.

Memory for their state, in multiples of the variables' size: SGD none, with momentum one; Adagrad
one; Adam two, with amsgrad three.

Two options of Keras still process whole tables, and cost accordingly: `weight_decay` (exclude
tables by `exclude_from_weight_decay`) and `use_ema`.
"""

from training.optimizers.adagrad import Adagrad
from training.optimizers.adam import Adam
from training.optimizers.loss_scale import LossScaleOptimizer
from training.optimizers.sgd import SGD

__all__ = ["SGD", "Adagrad", "Adam", "LossScaleOptimizer"]
