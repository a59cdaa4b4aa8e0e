//! Faults between nodes, and of what the launcher stands on: which test shows what happens.
//!
//! | code | fault | what shows it |
//! |---|---|---|
//! | F25 | a node without power | `tests/netns/cut.rs::a_pulled_cable_is_noticed_at_both_ends` |
//! | F26 | head and node are parted, both live | `tests/netns/cut.rs::a_pulled_cable_is_noticed_at_both_ends` |
//! | F27 | the link heals before the lease is over | `tests/netns/cut.rs::a_link_that_heals_in_time_is_only_told_of` |
//! | F28 | one direction is lost | `tests/netns/cut.rs::a_node_that_is_not_heard_any_more_is_lost_and_ends_itself`, `tests/netns/cut.rs::a_node_that_hears_nothing_any_more_is_lost_and_ends_itself` |
//! | F29 | two workers are parted, the head sees both | `tests/collectives/failures.rs::who_does_not_come_is_named` |
//! | F30 | a connection of which one end knows nothing | `tests/netns/cut.rs::a_node_that_is_not_heard_any_more_is_lost_and_ends_itself` |
//! | F31 | a flood of output on a slow link | `tests/netns/slow.rs::a_flood_of_output_on_a_slow_link_delays_no_beat`, `src/agent/window.rs::it_takes_what_it_delivered_in_the_last_second` |
//! | F33 | ssh lets us in on all hosts but one | `tests/ssh/refused.rs::who_is_not_let_in_is_told_once_and_not_tried_again`, `tests/ssh/refused.rs::every_bad_host_is_told_at_once_and_nothing_starts` |
//! | F34 | a host key has changed | `tests/ssh/refused.rs::a_changed_host_key_is_refused_whatever_else_the_user_allows` |
//! | F35 | hosts without a name, an sshd, an answer | `tests/ssh/refused.rs::every_bad_host_is_told_at_once_and_nothing_starts` |
//! | F36 | connections are dropped before authentication | `tests/ssh/refused.rs::a_dropped_connection_is_tried_again` |
//! | F37 | an sshd refuses us for a while | `tests/ssh/refused.rs::a_host_that_drops_every_connection_is_given_up` |
//! | F39 | a login shell that talks | `tests/ssh/shells.rs::a_start_up_file_may_talk`, `tests/ssh/shells.rs::a_start_up_file_that_never_stops_talking_is_told` |
//! | F40 | no agent, another one, another processor | `tests/ssh/bring.rs::a_node_that_lacks_the_agent_is_sent_it_once`, `tests/ssh/bring.rs::another_processor_than_ours_is_told`, `tests/ssh/bring.rs::an_installed_agent_that_is_not_there_is_told` |
//! | F41 | directory or script missing on a node | `tests/ssh/launch.rs::what_is_missing_on_a_node_is_told_before_anything_starts` |
//! | F42 | a program that is none | `tests/faults/options.rs::a_script_without_an_interpreter_is_126` |
//! | F43 | the port of rank 0 is taken | `tests/faults/options.rs::a_master_port_that_is_taken_is_an_error_before_anything_starts`, `src/os/ports.rs::a_port_is_claimed_once_even_after_its_socket_was_let_go` |
//! | F44 | a stranger at the store | `tests/store.rs::strangers_get_a_closed_connection` |
//! | F45 | a rank of another job at the store | `tests/store.rs::who_has_another_key_epoch_job_or_rank_stays_outside` |
//! | F46 | somebody of an earlier epoch comes back | `tests/store.rs::who_has_another_key_epoch_job_or_rank_stays_outside`, `tests/faults/agent.rs::what_was_said_in_an_earlier_epoch_is_not_heard`, `src/wire/frame.rs::an_epoch_that_is_announced_is_heard_and_the_one_before_is_not` |
//! | F47 | a log volume that is full | `tests/faults/output.rs::a_log_disk_that_is_full_is_told_once_and_ends_nothing`, `src/report/files.rs::what_cannot_be_written_is_told_once` |
//! | F48 | a log volume that hangs | `tests/faults/output.rs::a_log_disk_that_hangs_holds_up_neither_screen_nor_workers`, `src/report/files.rs::a_file_says_itself_what_is_missing_in_it` |
//! | F54 | too few descriptors | `tests/faults/options.rs::descriptors_are_checked_before_anything_starts` |
//! | F55 | no room for a process | `tests/faults/options.rs::a_worker_that_may_not_start_a_thread_says_so`, `src/job/cause.rs::why_a_worker_did_not_start_decides_the_status` |
//! | F56 | output without end, memory with one | `tests/faults/output.rs::prove_endless_line` |
//! | F57 | the wall clock jumps | `tests/architecture.rs::banned_words_stay_in_their_rooms` |
//! | F66 | a crash loop | `src/job/restarting.rs::a_crash_loop_waits_longer_and_longer_up_to_a_bound` |
//! | F73 | a scheduler that takes the nodes away | `tests/faults/restarts.rs::workers_hear_a_warning_before_they_are_asked_to_stop` |
//!
//! Without a test, and why:
//!
//! * F29 beyond the error that names the absent rank: a group notices it at the deadline of its
//!   operation, 600 s, which no test waits for.
//! * F32, packets lost and late: the kernel's `netem` makes them, which many kernels lack. The lease does
//!   not look at packets; slow links and links without packets are tested.
//! * F37 with the penalties of OpenSSH 9.8: the words of its sshd reach only a client that was asked for
//!   its debug messages, so the screen says that the connection was dropped, after four tries. Where the
//!   client shows them they are understood, and nothing is tried again (`src/transport/ssh/fault.rs`).
//! * F38, a start-up file that takes its time: nothing limits it below 120 s, and waiting shows nothing.
//! * F57 by really setting a clock: that needs a machine of its own. Decisions know only the monotonic
//!   clock, which the architecture test enforces.
//! * F58, a machine that was suspended: the monotonic clock does not count that time, so a lease goes on
//!   where it was; the far end of the link does not wait, and the job ends as in F25.

#![cfg(feature = "cli")]
