"""Passes: rewrite a module and preserve its meaning. Importing this package registers all of them by name."""

from hlokit.passes import buffer_removal as buffer_removal
from hlokit.passes import call_inliner as call_inliner
from hlokit.passes import computation_deduplicator as computation_deduplicator
from hlokit.passes import conditional_simplifier as conditional_simplifier
from hlokit.passes import constant_folding as constant_folding
from hlokit.passes import conv_canonicalization as conv_canonicalization
from hlokit.passes import cse as cse
from hlokit.passes import dce as dce
from hlokit.passes import defuser as defuser
from hlokit.passes import dynamic_padder as dynamic_padder
from hlokit.passes import op_expander as op_expander
from hlokit.passes import operand_upcaster as operand_upcaster
from hlokit.passes import pred_multiply_simplifier as pred_multiply_simplifier
from hlokit.passes import reduce_window_rewriter as reduce_window_rewriter
from hlokit.passes import scatter_splitter as scatter_splitter
from hlokit.passes import simplify as simplify
from hlokit.passes import tree_reduction_rewriter as tree_reduction_rewriter
from hlokit.passes import tuple_simplifier as tuple_simplifier
from hlokit.passes import while_loop_constant_sinking as while_loop_constant_sinking
from hlokit.passes import while_loop_invariant_code_motion as while_loop_invariant_code_motion
from hlokit.passes import while_loop_range_simplifier as while_loop_range_simplifier
from hlokit.passes import while_loop_scalarizer as while_loop_scalarizer
from hlokit.passes import while_loop_simplifier as while_loop_simplifier
from hlokit.passes import while_loop_trip_count_annotator as while_loop_trip_count_annotator
from hlokit.passes import while_loop_unroller as while_loop_unroller
from hlokit.passes import zero_sized_hlo_elimination as zero_sized_hlo_elimination
