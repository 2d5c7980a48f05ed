// Where clients find a card besides its runtime folder (host/admin.h has the whole rule).
#pragma once

namespace rdmalab::abi {

// The abstract name (unix(7)) on which a card also listens in each network namespace that it made.
// Such names are those of a network namespace, so every namespace finds its own card.
inline constexpr char kAbstractSocket[] = "rdmalab";

}  // namespace rdmalab::abi
