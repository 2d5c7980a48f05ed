// One line of text per frame, for logs, traces and test failures:
// "10.0.0.2 > 10.0.0.1 RC RDMA WRITE Only qp=0x11 psn=5 ackreq va=0x7f.. rkey=0x102 len=64 payload
// 64".
#pragma once

#include <string>

#include "wire/frame.h"

namespace rdmalab::wire {
std::string print(const Frame& frame);
}
