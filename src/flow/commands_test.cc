// Commands as messages: the same control over a pipe of bytes, and hostile bytes.
#include "flow/commands.h"

#include "flow/message_port.h"
#include "flow/pipeline_fixture.h"

namespace rdmalab::flow {
namespace {

class ByMessage : public PipelineTest {
protected:
    ByMessage() { control_ = make_control(1024); }
    std::unique_ptr<PipeControl> make_control(std::uint32_t depth) {
        const auto call = [this](ByteView request) {
            ++messages_;
            bytes_ += request.size();
            longest_ = std::max(longest_, request.size());
            return execute(pipeline_, request);
        };
        return std::make_unique<QueuedPipeControl>(
            std::make_unique<MessagePort>(call, pipeline_.ports()), depth);
    }
    std::size_t messages_ = 0, bytes_ = 0, longest_ = 0;
};

TEST_F(ByMessage, a_pipeline_of_every_kind_works_as_in_one_process) {
    PipeConfig hash;
    hash.name = "HASH";
    hash.type = PipeType::kHash;
    hash.algorithms = HashAlgorithm::kRoundRobin;
    hash.entries_max = 2;
    const PipeId hash_pipe = create(hash);
    for (const std::uint32_t i : {0u, 1u}) {
        HashEntry entry{i, {}};
        entry.actions.forward = i == 0 ? Forward::to_port(kSf0) : Forward::to_queues({4});
        add(hash_pipe, entry);
    }
    PipeConfig root;
    root.name = "root";
    root.is_root = true;
    root.type = PipeType::kControl;
    const PipeId pipe = create(root);
    ControlEntry entry;
    entry.priority = 4;
    entry.match = {L3Type::kIpv4, L4Type::kRoceV2, {{Field::kIpv4Dst, 0x0a00'0001}}};
    entry.mask = FieldValues{{Field::kIpv4Dst, 0xffff'ffff}};
    entry.own_actions = ActionTemplate{{{Field::kIpv4Ttl, 3}}, std::nullopt, {}};
    entry.actions.monitor.counter = true;
    entry.actions.forward = Forward::to_hash_pipe(hash_pipe, HashAlgorithm::kRoundRobin);
    const EntryId id = add(pipe, entry);
    EXPECT_EQ(send(roce_frame()), "pf0sf0");
    EXPECT_EQ(wire::hop_limit(sent()), 3);
    EXPECT_EQ(send(roce_frame()), "queue 4");
    EXPECT_EQ(send(roce_frame({.destination = "10.0.0.2"})), "drop");
    EXPECT_EQ(counters(id).packets, 2u);
    EXPECT_EQ(control_->query_miss(pipe)->packets, 1u);
    EXPECT_EQ(control_->destroy_pipe(hash_pipe).code(), EBUSY);
    EXPECT_TRUE(control_->destroy_pipe(pipe).ok());
    EXPECT_TRUE(control_->flush_pipes().ok());
    EXPECT_EQ(refusal(PipeConfig{}), "the name of a pipe: expected 1 to 127 characters, found 0");
}

TEST_F(ByMessage, a_batch_is_one_message_and_a_large_one_a_few) {
    PipeConfig root;
    root.name = "root";
    root.is_root = true;
    root.match.values.set_all_ones(Field::kIpv4Dst);
    root.forward = Forward::to_port(kWire);
    root.monitor.counter = true;
    const PipeId pipe = create(root);
    const auto fill = [&](std::uint32_t from, std::uint32_t count) {
        messages_ = 0;
        for (std::uint32_t i = from; i < from + count; ++i) {
            const Batch batch = i + 1 == from + count ? Batch::kFlush : Batch::kWait;
            const BasicEntry entry{{{Field::kIpv4Dst, i}}, {}};
            EXPECT_TRUE(control_->add_entry(pipe, entry, batch).ok());
        }
        std::vector<EntryCompletion> done;
        EXPECT_EQ(control_->process({}, 0, done).value(), count);
        for (const auto& completion : done) EXPECT_EQ(completion.status, EntryStatus::kSuccess);
        return messages_;
    };
    EXPECT_EQ(fill(0, 64), 1u);
    EXPECT_LE(fill(64, 1'000), 5u);
    EXPECT_LE(longest_, 60'000u);
    std::vector<EntryId> all;
    for (std::uint32_t i = 1; i <= 1'064; ++i) all.push_back(EntryId{i});
    messages_ = 0;
    EXPECT_EQ(control_->query_entries(all)->size(), 1'064u);
    EXPECT_EQ(messages_, 1u);
}

TEST_F(ByMessage, frames_of_a_queue_arrive_whole_and_in_order) {
    for (std::uint16_t i = 0; i < 100; ++i) {
        const ByteSpan place = pipeline_.captured().push(i, kSf4, 1'500);
        std::fill(place.begin(), place.end(), static_cast<std::byte>(i));
    }
    std::vector<CapturedFrame> frames;
    EXPECT_EQ(control_->poll_frames(frames).value(), 0u);
    ASSERT_EQ(frames.size(), 100u);
    for (std::uint16_t i = 0; i < 100; ++i) {
        EXPECT_EQ(frames[i].queue, i);
        EXPECT_EQ(frames[i].port, kSf4);
        EXPECT_EQ(frames[i].bytes, std::vector<std::byte>(1'500, static_cast<std::byte>(i)));
    }
    while (!pipeline_.captured().push(0, kSf4, 10'000).empty()) {
    }
    EXPECT_EQ(control_->poll_frames(frames).value(), 1u);
}

TEST_F(ByMessage, a_lost_card_completes_what_was_under_way) {
    bool is_gone = false;
    const auto call = [&](ByteView request) -> Result<std::vector<std::byte>> {
        if (is_gone) return Error{EPIPE, "the card has gone"};
        return execute(pipeline_, request);
    };
    QueuedPipeControl control(std::make_unique<MessagePort>(call, pipeline_.ports()), 16);
    PipeConfig root;
    root.name = "root";
    root.is_root = true;
    const PipeId pipe = control.create_pipe(root).value();
    BasicEntry entry;
    entry.actions.forward = Forward::drop();
    is_gone = true;
    ASSERT_TRUE(control.add_entry(pipe, entry, Batch::kFlush, 9).ok());
    std::vector<EntryCompletion> done;
    ASSERT_EQ(control.process({}, 0, done).value(), 1u);
    EXPECT_EQ(done[0].error.code, EPIPE);
    EXPECT_EQ(done[0].user_data, 9u);
    EXPECT_EQ(control.process({}, 0, done).error().code, EPIPE);
    EXPECT_EQ(control.create_pipe(root).error().code, EPIPE);
}

TEST_F(ByMessage, damaged_messages_are_refused_and_change_nothing_else) {
    std::vector<std::vector<std::byte>> samples;
    const auto record = [&](ByteView request) {
        samples.emplace_back(request.begin(), request.end());
        return execute(pipeline_, request);
    };
    control_ = std::make_unique<QueuedPipeControl>(
        std::make_unique<MessagePort>(record, pipeline_.ports()), 64);
    PipeConfig root;
    root.name = "root";
    root.match.values.set_all_ones(Field::kIpv4Dst);
    root.match_mask = FieldValues{{Field::kIpv4Dst, 0xffff'ffff}};
    root.actions.push_back({{{Field::kIpv4Ttl, 3}}, std::nullopt, {}});
    root.forward = Forward::changeable();
    const PipeId pipe = create(root);
    BasicEntry entry{{{Field::kIpv4Dst, 3}}, {}};
    entry.actions.forward = Forward::to_queues({1, 2});
    const EntryId id = add(pipe, entry);
    ASSERT_TRUE(control_->update_entry(id, entry.actions, Batch::kFlush).ok());
    expect_success();
    ASSERT_TRUE(control_->query_miss(pipe).ok());
    constexpr std::uint64_t kSeed = 12;
    Prng random(kSeed);
    for (int run = 0; run < 50'000; ++run) {
        std::vector<std::byte> bytes = samples[random.below(samples.size())];
        for (std::uint64_t n = 1 + random.below(3); n > 0; --n) {
            bytes[random.below(bytes.size())] = static_cast<std::byte>(random.next());
        }
        if (random.chance(0.3)) bytes.resize(random.below(bytes.size()));
        (void)execute(pipeline_, bytes);
        wire::Frame frame = roce_frame();
        pipeline_.process(kSf0, frame, sink_);
        sink_.left.clear();
    }
    SUCCEED() << "seed " << kSeed;
}

}  // namespace
}  // namespace rdmalab::flow
