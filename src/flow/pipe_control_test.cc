// The control side: batches, completions, updates and their replacements, errors.
#include "flow/pipeline_fixture.h"

namespace rdmalab::flow {
namespace {

using ::testing::HasSubstr;

EntryActions to(const Forward& forward) {
    EntryActions actions;
    actions.forward = forward;
    return actions;
}

// The dispatch table of path steering: bucket in meta.u32[4] -> changeable forward.
class Dispatch : public PipelineTest {
protected:
    explicit Dispatch(std::uint32_t entries_max = 128) {
        path0_ = deliver("PATH0", kSf0);
        path1_ = deliver("PATH1", kSf4);
        PipeConfig config;
        config.name = "DISPATCH";
        config.entries_max = entries_max;
        config.match.values.set_all_ones(Field::kMetaU32_4);
        config.match_mask = FieldValues{{Field::kMetaU32_4, 0xffff'ffff}};
        config.forward = Forward::changeable();
        dispatch_ = create(config);
        for (std::uint32_t bucket = 0; bucket < 64; ++bucket) {
            BasicEntry entry{{{Field::kMetaU32_4, bucket}}, to(path_of(bucket < 32))};
            const Batch batch = bucket == 63 ? Batch::kFlush : Batch::kWait;
            buckets_.push_back(control_->add_entry(dispatch_, entry, batch, bucket).value());
        }
        std::vector<EntryCompletion> done;
        EXPECT_EQ(control_->process({}, 0, done).value(), 64u);
        PipeConfig classify;
        classify.name = "CLASSIFY";
        classify.is_root = true;
        classify.match.values.set_all_ones(Field::kIpv4Identification);
        classify.actions.resize(1);
        classify.actions[0].values.set_all_ones(Field::kMetaU32_4);
        classify.forward = Forward::to_pipe(dispatch_);
        const PipeId root = create(classify);
        for (std::uint32_t bucket = 0; bucket < 64; ++bucket) {
            BasicEntry entry{{{Field::kIpv4Identification, bucket}}, {}};
            entry.actions.values = {{Field::kMetaU32_4, bucket}};
            add(root, entry);
        }
    }
    Forward path_of(bool zero) const { return Forward::to_pipe(zero ? path0_ : path1_); }
    std::string send_bucket(std::uint16_t bucket) {
        wire::Frame frame = roce_frame();
        wire::header_at<wire::Ipv4Header>(frame, frame.l3_offset)->identification = bucket;
        return send(frame);
    }
    std::string all_buckets() {
        std::string ways;
        for (std::uint16_t bucket = 0; bucket < 64; ++bucket) {
            const std::string way = send_bucket(bucket);
            ways += way == "pf0sf0" ? '0' : way == "pf0sf4" ? '1' : '?';
        }
        return ways;
    }

    PipeId path0_, path1_, dispatch_;
    std::vector<EntryId> buckets_;
};

class TightDispatch : public Dispatch {
protected:
    TightDispatch() : Dispatch(64) {}
};
class OneSpare : public Dispatch {
protected:
    OneSpare() : Dispatch(65) {}
};

TEST_F(Dispatch, live_updates_move_exactly_the_buckets_they_name) {
    EXPECT_EQ(all_buckets(), std::string(32, '0') + std::string(32, '1'));
    for (std::size_t bucket = 32; bucket < 48; ++bucket) {
        ASSERT_TRUE(
            control_->update_entry(buckets_[bucket], to(path_of(true)), Batch::kFlush).ok());
        std::vector<EntryCompletion> done;
        ASSERT_EQ(control_->process(milliseconds(10), 1, done).value(), 1u);
        EXPECT_EQ(done[0].status, EntryStatus::kSuccess) << done[0].error.text;
        EXPECT_EQ(done[0].op, EntryOp::kUpdate);
        EXPECT_EQ(done[0].user_data, bucket);
        EXPECT_EQ(all_buckets(), std::string(bucket + 1, '0') + std::string(63 - bucket, '1'));
    }
    const Pipe& pipe = *pipeline_.pipes().at(dispatch_);
    EXPECT_EQ(pipe.live(), 64u);
    EXPECT_EQ(pipe.retired(), 1u);  // the last one, until the queue is drained
    std::vector<EntryCompletion> done;
    EXPECT_EQ(control_->process(milliseconds(10), 0, done).value(), 0u);
    EXPECT_EQ(pipe.retired(), 0u);
}

TEST_F(TightDispatch, an_update_without_room_for_its_replacement_fails_and_changes_nothing) {
    ASSERT_TRUE(control_->update_entry(buckets_[40], to(path_of(true)), Batch::kFlush).ok());
    const EntryCompletion completion = last_completion();
    EXPECT_EQ(completion.status, EntryStatus::kError);
    EXPECT_EQ(completion.error.code, ENOSPC);
    EXPECT_EQ(completion.error.text,
              "pipe \"DISPATCH\": no room for the replacement of an entry: found 64 live and 0 "
              "retired entries of 64");
    EXPECT_EQ(all_buckets(), std::string(32, '0') + std::string(32, '1'));
}

TEST_F(OneSpare, an_update_before_the_last_one_was_retired_is_to_be_tried_again) {
    ASSERT_TRUE(control_->update_entry(buckets_[40], to(path_of(true)), Batch::kWait).ok());
    ASSERT_TRUE(control_->update_entry(buckets_[41], to(path_of(true)), Batch::kFlush).ok());
    std::vector<EntryCompletion> done;
    ASSERT_EQ(control_->process({}, 0, done).value(), 2u);
    EXPECT_EQ(done[0].status, EntryStatus::kSuccess);
    EXPECT_EQ(done[1].error.code, EAGAIN);
    ASSERT_TRUE(control_->update_entry(buckets_[41], to(path_of(true)), Batch::kFlush).ok());
    expect_success();
    EXPECT_EQ(send_bucket(41), "pf0sf0");
}

TEST_F(Dispatch, an_updated_entry_goes_on_counting) {
    PipeConfig config;
    config.name = "COUNTED";
    config.is_root = false;
    config.monitor.counter = true;
    config.match.values.set_all_ones(Field::kParserPort);
    config.forward = Forward::changeable();
    const PipeId pipe = create(config);
    const EntryId entry =
        add(pipe, BasicEntry{{{Field::kParserPort, kSf0.value}}, to(Forward::to_port(kWire))});
    EXPECT_TRUE(control_->update_miss(dispatch_, Forward::to_pipe(pipe)).ok());
    ASSERT_TRUE(control_->remove_entry(buckets_[5], Batch::kFlush).ok());
    expect_success();
    EXPECT_EQ(send_bucket(5), "p0");
    ASSERT_TRUE(control_->update_entry(entry, to(Forward::drop()), Batch::kFlush).ok());
    expect_success();
    EXPECT_EQ(send_bucket(5), "drop");
    EXPECT_EQ(counters(entry).packets, 2u);
}

TEST_F(Dispatch, a_removed_key_can_be_added_again) {
    ASSERT_TRUE(control_->remove_entry(buckets_[5], Batch::kFlush).ok());
    expect_success();
    EXPECT_EQ(control_->entry_status(buckets_[5]).error().code, ENOENT);
    EXPECT_EQ(send_bucket(5), "drop");
    add(dispatch_, BasicEntry{{{Field::kMetaU32_4, 5}}, to(path_of(false))});
    EXPECT_EQ(send_bucket(5), "pf0sf4");
    EXPECT_EQ(control_->update_entry(buckets_[5], {}, Batch::kFlush).code(), EINVAL);
}

TEST_F(Dispatch, a_duplicate_key_is_refused_by_name) {
    const Error error = refused(dispatch_, BasicEntry{{{Field::kMetaU32_4, 5}}, to(path_of(true))});
    EXPECT_EQ(error.code, EEXIST);
    EXPECT_THAT(error.text, HasSubstr("pipe \"DISPATCH\": the key of the entry is that of entry "));
    EXPECT_THAT(error.text, HasSubstr("(meta.u32[4]=0x5)"));
}

TEST_F(Dispatch, a_pipe_that_others_forward_to_is_not_destroyed) {
    const Status status = control_->destroy_pipe(path0_);
    EXPECT_EQ(status.code(), EBUSY);
    EXPECT_EQ(status.error().text, "pipe \"PATH0\": \"DISPATCH\" forwards to it");
    EXPECT_EQ(send_bucket(0), "pf0sf0");
}

TEST_F(PipelineTest, waiting_operations_take_effect_when_one_is_flushed) {
    PipeConfig root;
    root.name = "root";
    root.is_root = true;
    root.match.values.set_all_ones(Field::kParserPort);
    root.forward = Forward::to_port(kWire);
    const PipeId pipe = create(root);
    const auto entry = [](PortId port) {
        return BasicEntry{{{Field::kParserPort, port.value}}, {}};
    };
    const EntryId first = control_->add_entry(pipe, entry(kSf0), Batch::kWait).value();
    std::vector<EntryCompletion> done;
    EXPECT_EQ(control_->process(milliseconds(1), 0, done).value(), 0u);
    EXPECT_EQ(send(roce_frame()), "drop");
    EXPECT_EQ(control_->entry_status(first).value(), EntryStatus::kInProcess);
    ASSERT_TRUE(control_->add_entry(pipe, entry(kSf4), Batch::kFlush).ok());
    EXPECT_EQ(send(roce_frame()), "p0");
    EXPECT_EQ(control_->process(milliseconds(1), 0, done).value(), 2u);
    EXPECT_EQ(done[0].entry, first);
    EXPECT_EQ(control_->entry_status(first).value(), EntryStatus::kSuccess);
}

TEST_F(PipelineTest, a_full_queue_flushes_itself_and_then_wants_to_be_processed) {
    const auto control = make_local_control(pipeline_, 2);
    PipeConfig root;
    root.name = "root";
    root.is_root = true;
    root.match.values.set_all_ones(Field::kParserPort);
    root.forward = Forward::to_port(kWire);
    const PipeId pipe = control->create_pipe(root).value();
    const auto entry = [](std::uint16_t port) {
        return BasicEntry{{{Field::kParserPort, port}}, {}};
    };
    ASSERT_TRUE(control->add_entry(pipe, entry(1), Batch::kWait).ok());
    ASSERT_TRUE(control->add_entry(pipe, entry(2), Batch::kWait).ok());
    EXPECT_EQ(send(roce_frame()), "p0");
    EXPECT_EQ(control->add_entry(pipe, entry(3), Batch::kFlush).error().code, EAGAIN);
    std::vector<EntryCompletion> done;
    EXPECT_EQ(control->process({}, 1, done).value(), 1u);
    EXPECT_TRUE(control->add_entry(pipe, entry(3), Batch::kFlush).ok());
}

struct Refusal {
    const char* what;
    void (*change)(PipeConfig&);
    const char* text;
};

const Refusal kRefusals[] = {
    {"a miss to a port", [](PipeConfig& c) { c.miss = Forward::to_port(kSf0); },
     "pipe \"P\": miss: expected a pipe or drop, found a port (pf0sf0)"},
    {"a second root", [](PipeConfig& c) { c.is_root = true; },
     "pipe \"P\": a second root: \"ROOT\" is the root of the domain"},
    {"no such port", [](PipeConfig& c) { c.forward = Forward::to_port(PortId{77}); },
     "pipe \"P\": forward: there is no port 77 in this domain"},
    {"no such pipe", [](PipeConfig& c) { c.forward = Forward::to_pipe(PipeId{77}); },
     "pipe \"P\": forward: there is no pipe 77"},
    {"hash size",
     [](PipeConfig& c) {
         c.type = PipeType::kHash;
         c.algorithms = HashAlgorithm::kRandom;
         c.entries_max = 48;
     },
     "pipe \"P\": a HASH pipe: expected a power of two of entries, found 48"},
    {"hash too large",
     [](PipeConfig& c) {
         c.type = PipeType::kHash;
         c.algorithms = HashAlgorithm::kRandom;
         c.entries_max = 1u << 17;
     },
     "pipe \"P\": a HASH pipe: expected at most 65536 entries, found 131072"},
    {"hash without algorithm",
     [](PipeConfig& c) {
         c.type = PipeType::kHash;
         c.entries_max = 64;
     },
     "pipe \"P\": a HASH pipe: expected a map algorithm, found none"},
    {"metadata without a mask",
     [](PipeConfig& c) {
         c.match.values = {{Field::kMetaPkt, 5}};
     },
     "pipe \"P\": match on meta.pkt_meta: expected a mask, as for all metadata"},
    {"IPv4 and IPv6",
     [](PipeConfig& c) {
         c.match.values = {{Field::kIpv4Dst, 5}, {Field::kIpv6HopLimit, 5}};
     },
     "pipe \"P\": match on outer.ipv6.hop_limit: no packet has it together with the other fields "
     "or types"},
    {"too wide",
     [](PipeConfig& c) {
         c.match.values = {{Field::kIpv4Ttl, 256}};
     },
     "pipe \"P\": match on outer.ipv4.ttl: the value is wider than the field"},
    {"a BTH cannot be written",
     [](PipeConfig& c) {
         c.actions.push_back({{{Field::kBthDestQp, 5}}, std::nullopt, {}});
     },
     "pipe \"P\": actions[0]: action on outer.roce_v2.bth.dest_qp: expected a field that can be "
     "written"},
    {"random and rewriting",
     [](PipeConfig& c) {
         c.match_mask = FieldValues{{Field::kParserRandom, 0xff}};
         c.actions.push_back({{{Field::kIpv4Ttl, 5}}, std::nullopt, {}});
     },
     "pipe \"P\": a match on parser_meta.random cannot be combined with an action that writes a "
     "header; use a pipe behind it"},
    {"no name", [](PipeConfig& c) { c.name = ""; },
     "the name of a pipe: expected 1 to 127 characters, found 0"},
    {"no entries", [](PipeConfig& c) { c.entries_max = 0; },
     "pipe \"P\": entries_max: expected 1 to 262144, found 0"},
};

TEST_F(PipelineTest, what_does_not_fit_is_refused_with_pipe_and_field) {
    PipeConfig root;
    root.name = "ROOT";
    root.is_root = true;
    create(root);
    for (const Refusal& refusal : kRefusals) {
        PipeConfig config;
        config.name = "P";
        refusal.change(config);
        EXPECT_EQ(this->refusal(config), refusal.text) << refusal.what;
    }
    EXPECT_EQ(pipeline_.pipes().size(), 1u);
}

TEST_F(PipelineTest, a_hash_pipe_is_no_root_unless_the_version_says_so) {
    PipeConfig config;
    config.name = "H";
    config.is_root = true;
    config.type = PipeType::kHash;
    config.algorithms = HashAlgorithm::kRandom;
    config.entries_max = 4;
    EXPECT_EQ(refusal(config), "pipe \"H\": a HASH pipe cannot be the root");
    Pipeline lenient(test_ports(), {.hash_root_allowed = true});
    EXPECT_TRUE(lenient.create_pipe(config).ok());
}

TEST_F(PipelineTest, entries_are_refused_with_pipe_and_rule) {
    PipeConfig hash;
    hash.name = "EGRESS_CLASSIFY";
    hash.type = PipeType::kHash;
    hash.algorithms = HashAlgorithm::kRandom;
    hash.entries_max = 64;
    hash.forward = Forward::to_port(kWire);
    const PipeId pipe = create(hash);
    const EntryId five = add(pipe, HashEntry{5, {}});
    EXPECT_THAT(refused(pipe, HashEntry{5, {}}).text, HasSubstr("there is an entry at index 5"));
    EXPECT_THAT(refused(pipe, HashEntry{64, {}}).text,
                HasSubstr("expected one below 64, found 64"));
    EXPECT_THAT(refused(pipe, BasicEntry{}).text, HasSubstr("found one for a BASIC pipe"));
    ASSERT_TRUE(control_->update_entry(five, {}, Batch::kFlush).ok());
    const Error error = last_completion().error;
    EXPECT_EQ(error.code, EOPNOTSUPP);
    EXPECT_EQ(error.text,
              "pipe \"EGRESS_CLASSIFY\": entry 1 (index 5): an entry of a HASH pipe cannot be "
              "updated");

    PipeConfig plain;
    plain.name = "PLAIN";
    plain.match.values.set_all_ones(Field::kIpv4Dst);
    const PipeId basic = create(plain);
    EXPECT_THAT(refused(basic, BasicEntry{{{Field::kIpv4Src, 1}}, to(Forward::drop())}).text,
                HasSubstr("match on outer.ipv4.src_ip: an entry supplies it"));
    EXPECT_THAT(refused(basic, BasicEntry{}).text, HasSubstr("an entry without a forward"));
    BasicEntry indexed{{}, to(Forward::drop())};
    indexed.actions.action_index = 2;
    EXPECT_THAT(refused(basic, indexed).text, HasSubstr("action_index: expected one below 0"));
    const EntryId entry = add(basic, BasicEntry{{}, to(Forward::drop())});
    ASSERT_TRUE(control_->update_entry(entry, to(Forward::to_port(kWire)), Batch::kFlush).ok());
    EXPECT_EQ(last_completion().error.code, EOPNOTSUPP);  // kNone is not kChangeable
}

TEST_F(PipelineTest, counters_run_out_by_number) {
    Pipeline pipeline(test_ports(), {.counters_max = 2});
    const auto control = make_local_control(pipeline);
    PipeConfig config;
    config.name = "COUNTED";
    config.monitor.counter = true;
    config.match.values.set_all_ones(Field::kIpv4Dst);
    config.forward = Forward::drop();
    const PipeId pipe = control->create_pipe(config).value();
    std::vector<EntryCompletion> done;
    EntryId first;
    for (std::uint32_t i = 0; i < 3; ++i) {
        const BasicEntry entry{{{Field::kIpv4Dst, i}}, {}};
        const EntryId id = control->add_entry(pipe, entry, Batch::kFlush).value();
        if (i == 0) first = id;
    }
    ASSERT_EQ(control->process({}, 0, done).value(), 3u);
    EXPECT_EQ(done[2].error.code, ENOSPC);
    EXPECT_THAT(done[2].error.text, HasSubstr("all 2 of the domain are in use"));
    ASSERT_TRUE(control->remove_entry(first, Batch::kFlush).ok());
    EXPECT_EQ(pipeline.counters_used(), 1u);
    ASSERT_TRUE(control->destroy_pipe(pipe).ok());
    EXPECT_EQ(pipeline.counters_used(), 0u);
}

}  // namespace
}  // namespace rdmalab::flow
