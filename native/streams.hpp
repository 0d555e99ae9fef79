/// The consumer's side of generator tasks: items as they come, credits that hold the producer back, and items
/// that are made again. Its state hangs on the tasks and on the entries that they complete.
///
/// STR-1  An item's id derives from the task and its index, so a retry's repetition is told and dropped.
/// STR-2  A producer is at most `window` items ahead of what its consumer has taken.
/// STR-3  An item in the arena whose bytes are gone is made again by its task: by the attempt that is under
///        way if that has not sent it yet, else by one that begins anew. Once the stream is over that attempt
///        goes no further than the last item that is wanted. Items that are there, or were freed, stay as
///        they are.
#pragma once

#include <string_view>

#include "endpoint.hpp"
#include "task.hpp"

namespace weft {

class Borrowing;
class LentRows;
class Lineage;
class Objects;
class Submitter;
class Tasks;

class Streams {
  public:
    Streams(Endpoint& endpoint, Tasks& tasks, Objects& objects, Borrowing& borrowing, Submitter& submitter,
            Lineage& lineage, LentRows& rows)
        : endpoint_(endpoint),
          tasks_(tasks),
          objects_(objects),
          borrowing_(borrowing),
          submitter_(submitter),
          lineage_(lineage),
          rows_(rows) {}

    /// The next item's entry (its hold passes to the caller), or null when none has come.
    Entry* take_item(Entry* generator);
    void close_stream(Entry* generator);
    void on_stream_item(ProcessId from, Cursor cursor);
    /// Something came, or the end.
    void wake_stream(Stream* stream);

    /// Before the task is sent: how far it goes when nobody takes its items any more.
    void aim(Task* task);
    /// The task was sent: its worker must know what the consumer has taken already.
    void start_stream(Task* task);
    /// The task has answered.
    void end_stream(Task* task);
    /// For the sake of an item that it has sent already.
    void begin_stream_again(Task* task);

    static void register_item(Task* task, Entry* item);
    /// The task begins anew, under another cookie: what is lost by now comes with it.
    void want_items(Task* task);
    void item_lost(Task* task, Entry* item);
    /// Those that were to be made again, and are not.
    void fail_items(Task* task, std::string_view error);
    /// The task is over, and nothing is kept of it.
    static void abandon_items(Task* task);

  private:
    Entry* place_of_item(Task* task, uint32_t index, bool is_error);
    void send_credit(Task* task, uint32_t consumed);
    void stop_stream(Task* task);

    Endpoint& endpoint_;
    Tasks& tasks_;
    Objects& objects_;
    Borrowing& borrowing_;
    Submitter& submitter_;
    Lineage& lineage_;
    LentRows& rows_;
};

}  // namespace weft
