/* A device's decoding rate: see pace.h. */
#include "serve/pace.h"

static const double WINDOW = 0.25 /* seconds */, WEIGHTS_SHARE = 4 /* a / b */;

static double average(double before, double now) { return before > 0 ? (before + now) / 2 : now; }

void pace_note(Pace *pace, double now, int sequences, bool alone) {
  const double before = pace->before;
  pace->left--;
  pace->before = alone ? now : 0;
  if (!alone || before <= 0) return;
  pace->seconds += now - before;
  pace->tokens += 1;
  pace->steps += 1.0 / sequences;
  if (pace->seconds < WINDOW) return;
  pace->rate = average(pace->rate, pace->tokens / pace->seconds);
  pace->speed = average(pace->speed, (pace->tokens + WEIGHTS_SHARE * pace->steps) / pace->seconds);
  pace->seconds = pace->tokens = pace->steps = 0;
}

double pace_seconds(const Pace *pace, int64_t more, double usual) {
  const double speed = pace->speed > 0 ? pace->speed : usual > 0 ? usual : 1;
  return (double)(pace->left + more) / speed;
}

void pace_restart(Pace *pace) { *pace = (Pace){.rate = pace->rate, .speed = pace->speed}; }
