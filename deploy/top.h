// `islands top`: what every island does right now, in a terminal.
//
//   top_sample    rows and histories out of status and snapshots    no I/O
//   top_screen    rows and a view of them as lines                  no I/O
//   top_columns   the table within them; top_text its numbers       no I/O
//   top_keys      keys that change the view                         no I/O
//   top_terminal  lines onto a terminal
//   top           asks the cluster, waits, and puts these together
//
// Thread safety: main thread only.
#pragma once

#include <string>

#include "deploy/commands.h"
#include "deploy/top_sample.h"

namespace islands::deploy {

struct TopOptions {
  std::string file;
  bool once = false;  // one table, over one interval; also where stdout is no terminal, or a dumb one
  TopSort sort = TopSort::kIsland;
  double interval_s = 1;
};
// Live, until q (0), Ctrl-C or SIGTERM (130). A cluster that is not up at the start is an error; one whose
// supervisor stops answering meanwhile is waited for, and is an error only if it has not come back by then.
int Top(const CommandContext& context, const TopOptions& options);

}  // namespace islands::deploy
