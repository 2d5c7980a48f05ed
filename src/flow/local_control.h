// The PipeControl of a pipeline in the same process: what simulations and tests program.
#pragma once

#include <memory>

#include "flow/pipe_control.h"

namespace rdmalab::flow {

class Pipeline;

// The pipeline must outlive the control. Operations take effect when they are flushed, in their
// order; their completions wait for `process`. A timeout is never waited for.
std::unique_ptr<PipeControl> make_local_control(Pipeline& pipeline,
                                                std::uint32_t queue_depth = 128);

}  // namespace rdmalab::flow
