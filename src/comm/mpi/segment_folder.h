// SegmentFolder: where Open MPI puts the memory that its ranks of one host share. It opens files of names that anybody
// can predict in /dev/shm, also if somebody else has made them before, who could then read and write what ranks send,
// unless the kernel forbids it (fs.protected_regular). So each rank's file lies in a folder that only its user can
// enter, and it loses its name as soon as all ranks have opened it: nothing stays behind however a rank ends later.
// What ranks that were killed in MPI_Init have left is removed by the next one of that user.
//
// A user's own choice of the place (btl_vader_backing_directory, btl_sm_backing_directory) is left alone if --mca or
// the environment makes it; one in a parameter file is overridden. Where no folder can be made, Open MPI's place stays.
//
// Thread rule: the thread that starts and ends MPI.
#pragma once

#include <string>
#include <vector>

namespace temper {

class SegmentFolder {
 public:
  // Before MPI_Init. Removes folders that nobody has held for a minute.
  SegmentFolder();
  // Removes the folder.
  ~SegmentFolder();
  SegmentFolder(const SegmentFolder&) = delete;
  SegmentFolder& operator=(const SegmentFolder&) = delete;

  // Once all ranks have left MPI_Init: takes the names away.
  void Hide();
  // Before MPI_Finalize, which complains about names that it cannot remove: puts empty files in their place.
  void Show() const;

 private:
  std::string path_;                // empty: none was made
  int held_ = -1;                   // a descriptor with a lock on it: it is in use
  std::vector<std::string> files_;  // that were there when they lost their names
};

}  // namespace temper
