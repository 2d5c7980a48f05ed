#include "perftest/report_page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace rdmalab::perftest {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::string results_in(const std::string& page) {
    const std::string open = R"(<script type="application/json" id="results">)";
    const std::size_t from = page.find(open) + open.size();
    return page.substr(from, page.find("</script>", from) - from);
}

Json report_with(const std::string& name) {
    return {{"versionInfo", {{"jsonOutputSchema", "1.4.0"}}},
            {"scenario", {{"name", name}}},
            {"connections", Json::array()}};
}

TEST(ReportPage, the_results_are_inside_as_they_were) {
    const Json report = report_with("elephants & \"mice\"");
    EXPECT_EQ(Json::parse(results_in(report_page(report))), report);
}

TEST(ReportPage, no_text_of_the_report_becomes_part_of_the_page) {
    const Json report = report_with("</script><script>alert(1)</script><!--");
    const std::string page = report_page(report);
    EXPECT_THAT(page, Not(HasSubstr("alert(1)</script>")));
    EXPECT_EQ(Json::parse(results_in(page)), report);
}

TEST(ReportPage, marks_in_a_report_are_left_alone) {
    const Json report = report_with("@charts@ @script@ @style@ @results@");
    EXPECT_EQ(Json::parse(results_in(report_page(report))), report);
}

TEST(ReportPage, nothing_is_fetched) {
    const std::string page = report_page(report_with("x"));
    for (const char* reference : {"<link", "<script src", "<img", "@import", "url("}) {
        const std::size_t at = page.find(reference);
        // The plotting library names some of these in texts of its own, behind the results.
        EXPECT_TRUE(at == std::string::npos || at > page.find("id=\"results\"")) << reference;
    }
    EXPECT_THAT(page, HasSubstr("charts.init"));
    EXPECT_THAT(page, HasSubstr("prefers-color-scheme"));
}

TEST(ReportPage, bytes_that_are_not_utf8_are_replaced) {
    EXPECT_THAT(results_in(report_page(report_with("caf\xe9"))), HasSubstr("caf\xef\xbf\xbd"));
}

}  // namespace
}  // namespace rdmalab::perftest
