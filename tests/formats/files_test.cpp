// SPDX-License-Identifier: Apache-2.0
#include "reprise/formats/files.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "reprise/core/error.h"

namespace reprise {
namespace {

class Files : public testing::Test {
 protected:
  Files() {
    folder_ = std::filesystem::temp_directory_path() /
              ("reprise_" + std::to_string(::getpid()) + "_" +
               testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::create_directory(folder_);
  }
  ~Files() override { std::filesystem::remove_all(folder_); }

  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  std::size_t entries() const {
    return static_cast<std::size_t>(
        std::distance(std::filesystem::directory_iterator(folder_), {}));
  }

 private:
  std::filesystem::path folder_;
};

TEST_F(Files, DropAByteOrderMarkAndLeadingBlanks) {
  write_text(path("a"), "\xEF\xBB\xBF \r\n\n\t{}\n");
  const Text text = read_text(path("a"));
  EXPECT_EQ(text.content, "{}\n");
  EXPECT_EQ(text.first_line, 3U);
}

TEST_F(Files, RefuseWhatIsNotThere) {
  EXPECT_THROW(read_text(path("missing")), InputError);
  EXPECT_THROW(read_text(path("")), InputError);
  write_text(path("blank"), " \n \n");
  EXPECT_THROW(read_text(path("blank")), InputError);
  EXPECT_THROW(write_text(path("no/such/folder"), "x"), InputError);
  EXPECT_THROW(write_text(path(""), "x"), InputError);
}

TEST_F(Files, AreReplacedWholeAndLeaveNothingBeside) {
  write_text(path("a"), "old");
  std::filesystem::permissions(path("a"), std::filesystem::perms{0640});
  write_text(path("a"), "new");
  EXPECT_EQ(read_text(path("a")).content, "new");
  EXPECT_EQ(std::filesystem::status(path("a")).permissions(), std::filesystem::perms{0640});
  std::filesystem::create_symlink("a", path("link"));
  write_text(path("link"), "through");
  EXPECT_TRUE(std::filesystem::is_symlink(path("link")));
  EXPECT_EQ(read_text(path("a")).content, "through");
  EXPECT_EQ(entries(), 2U);
}

TEST_F(Files, ThatAreDevicesAreWrittenTo) {
  write_text("/dev/null", "gone");
  EXPECT_TRUE(std::filesystem::is_character_file("/dev/null"));
}

}  // namespace
}  // namespace reprise
