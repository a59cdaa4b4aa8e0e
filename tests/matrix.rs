//! Table of faults of a job (`F`) and of invalid input from the network (`B`), with the tests that cover
//! each.
//!
//! | code | fault | tests |
//! |---|---|---|
//! | F01 | one worker exits with 3 | `tests/faults/workers.rs::exit_code_is_the_status_and_stops_other_workers`, `tests/faults/screens.rs::exit_code_screen` |
//! | F02 | one worker exits with 0 while others run | `tests/faults/workers.rs::early_success_stops_no_worker`, `tests/faults/screens.rs::early_exit_is_named` |
//! | F03 | a worker is killed | `tests/faults/workers.rs::killed_worker_is_137`, `tests/faults/screens.rs::signal_screen` |
//! | F04 | a worker crashes and dumps core | `tests/faults/workers.rs::crash_names_its_signal_and_core_dump` |
//! | F05 | the OOM killer kills a worker | `tests/faults/workers.rs::oom_killed_worker_is_reported` |
//! | F06 | all workers crash at once | `tests/faults/workers.rs::simultaneous_crashes_name_one_rank`, `tests/faults/screens.rs::other_failures_are_counted` |
//! | F07 | a worker ignores SIGTERM | `tests/faults/workers.rs::worker_ignoring_sigterm_is_killed_after_grace` |
//! | F08 | a worker cannot be killed | `tests/faults/workers.rs::unkillable_worker_is_reported` |
//! | F09 | a worker leaves a daemon behind | `tests/faults/workers.rs::leftover_daemon_of_a_success_is_reported_and_killed`, `tests/faults/workers.rs::leftover_daemon_of_a_failure_is_killed`, `tests/faults/workers.rs::leftover_daemon_without_a_rank_is_killed` |
//! | F10 | a left-behind process keeps the output open | `tests/faults/workers.rs::held_output_pipe_does_not_block_the_end`, `tests/faults/workers.rs::leftover_holding_the_output_is_reported_and_stopped` |
//! | F11 | a chain of forks while the job is stopped | `tests/faults/workers.rs::fork_chain_does_not_escape_a_failure`, `tests/faults/workers.rs::fork_chain_of_a_success_does_not_block_the_end` |
//! | F12 | zombies that are not reaped | `tests/faults/workers.rs::zombies_are_not_leftovers`, `tests/faults/workers.rs::orphans_that_exit_are_reaped` |
//! | F13 | the shim is killed, or stopped | `tests/faults/own_processes.rs::killed_shim_stops_its_workers_and_is_the_cause`, `tests/faults/screens.rs::lost_shim_screen`, `tests/faults/frozen.rs::stopped_shim_is_killed_with_its_workers` |
//! | F14 | the agent is killed | `tests/faults/own_processes.rs::killed_agent_is_the_cause_and_stops_other_nodes`, `tests/faults/own_processes.rs::killed_agent_of_a_single_node_is_the_cause`, `tests/faults/screens.rs::lost_agent_screen` |
//! | F15 | agent and shim are killed together | `tests/faults/own_processes.rs::agent_and_shim_killed_together_leave_nothing` |
//! | F16 | the launcher is killed | `tests/faults/own_processes.rs::killed_launcher_leaves_nothing`, `tests/faults/own_processes.rs::killed_launcher_lets_workers_receive_sigterm_first`, `tests/ssh/killed.rs::killed_launcher_leaves_nothing_on_any_host`, `tests/ssh/killed.rs::next_launch_clears_after_killed_launcher_and_janitor` |
//! | F17 | the launcher is suspended | `tests/faults/own_processes.rs::suspended_launcher_loses_its_lease`, `src/simulation/prove.rs::prove_simulate` |
//! | F18 | a first interrupt | `tests/faults/signals.rs::first_sigint_is_forwarded_and_becomes_sigterm`, `tests/faults/screens.rs::interrupt_screen` |
//! | F19 | a second interrupt | `tests/faults/signals.rs::second_sigint_kills_workers` |
//! | F20 | a third interrupt | `tests/faults/signals.rs::third_sigint_exits_and_names_unconfirmed_nodes` |
//! | F21 | SIGTERM to the launcher | `tests/faults/signals.rs::sigterm_is_143_and_keeps_the_grace`, `tests/faults/signals.rs::signal_sent_twice_by_timeout_is_one_request` |
//! | F22 | the terminal is closed | `tests/faults/signals.rs::closed_terminal_stops_the_job`, `tests/faults/signals.rs::nohup_is_kept_by_launcher_and_workers` |
//! | F23 | the job is suspended and continued | `tests/faults/signals.rs::suspended_job_suspends_its_workers_and_resumes`, `src/simulation/prove.rs::prove_simulate` |
//! | F24 | SIGQUIT to the launcher | `tests/faults/signals.rs::sigquit_shows_every_worker`, `tests/faults/screens.rs::state_of_all_workers_screen`, `tests/ssh/refused.rs::sigquit_shows_the_progress_of_logins` |
//! | F25 | a node loses power | `tests/netns/cut.rs::pulled_cable_is_detected_at_both_ends`, `tests/pods/cut.rs::disconnected_pod_0_ends_the_job_on_all_pods` |
//! | F26 | launcher and node are partitioned, both run | `tests/netns/cut.rs::pulled_cable_is_detected_at_both_ends`, `tests/pods/cut.rs::disconnected_pod_is_lost_at_both_ends`, `tests/pods/cut.rs::reconnected_pod_takes_part_in_the_restart` |
//! | F27 | the link recovers before the lease expires | `tests/netns/cut.rs::link_restored_within_the_lease_keeps_the_job`, `tests/pods/cut.rs::link_restored_within_the_lease_loses_no_line` |
//! | F28 | one direction of the link is lost | `tests/netns/cut.rs::node_whose_sends_are_lost_stops_its_workers`, `tests/netns/cut.rs::node_whose_receives_are_lost_stops_its_workers`, `tests/pods/cut.rs::pod_that_cannot_send_is_lost_and_exits`, `tests/pods/cut.rs::pod_that_cannot_receive_is_lost_and_exits` |
//! | F29 | two workers are partitioned, the launcher reaches both | `tests/collectives/failures.rs::deadline_names_the_late_rank`, `tests/pods/cut.rs::waiting_ranks_name_the_pod_they_cannot_reach` |
//! | F30 | a half-open connection | `tests/netns/cut.rs::node_whose_sends_are_lost_stops_its_workers`, `tests/pods/cut.rs::pod_that_cannot_send_is_lost_and_exits` |
//! | F31 | a flood of output on a slow link | `tests/netns/slow.rs::slow_link_with_much_output_keeps_heartbeats`, `tests/pods/cut.rs::output_on_a_slow_link_delays_no_heartbeat`, `src/agent/flow_control.rs::window_equals_bytes_of_the_last_second` |
//! | F32 | packets are lost | `tests/netns/slow.rs::lost_packets_cost_neither_a_node_nor_a_line`, `tests/pods/cut.rs::packet_loss_loses_neither_pod_nor_line` |
//! | F33 | ssh is refused on one host | `tests/ssh/refused.rs::refused_login_is_reported_without_another_attempt`, `tests/ssh/refused.rs::every_unreachable_host_is_reported_at_once` |
//! | F34 | a host key has changed | `tests/ssh/refused.rs::changed_host_key_is_always_refused` |
//! | F35 | hosts without a name, an sshd, or an answer | `tests/ssh/refused.rs::every_unreachable_host_is_reported_at_once` |
//! | F36 | connections are dropped before authentication | `tests/ssh/refused.rs::dropped_connection_is_tried_again` |
//! | F37 | an sshd refuses connections for a while | `tests/ssh/refused.rs::host_that_drops_every_connection_fails` |
//! | F38 | a slow login shell | `tests/ssh/shells.rs::start_up_file_may_be_slow`, `tests/ssh/refused.rs::hosts_that_hang_after_the_login_time_out` |
//! | F39 | a login shell that prints output | `tests/ssh/shells.rs::start_up_file_may_print`, `tests/ssh/shells.rs::start_up_file_that_prints_without_end_is_an_error` |
//! | F40 | no agent, another version, another processor | `tests/ssh/bring.rs::node_without_the_agent_receives_it_once`, `tests/ssh/bring.rs::different_processor_architecture_is_an_error`, `tests/ssh/bring.rs::missing_installed_agent_is_an_error` |
//! | F41 | directory or script missing on a node | `tests/ssh/launch.rs::missing_program_is_reported_before_the_start`, `tests/ssh/refused.rs::missing_directory_is_one_error`, `tests/ssh/refused.rs::files_of_a_training_are_checked_before_the_start` |
//! | F42 | a program that cannot be executed | `tests/faults/options.rs::script_without_an_interpreter_is_126` |
//! | F43 | the port of rank 0 is in use | `tests/faults/options.rs::master_port_in_use_is_refused_before_the_start`, `src/os/net/ports.rs::port_claim_excludes_claims_after_socket_release`, `tests/pods/joining.rs::port_in_use_is_reported_before_the_wait` |
//! | F44 | an unknown client connects to the store | `tests/store.rs::connection_with_invalid_bytes_is_closed`, `tests/pods/strangers.rs::foreign_connections_get_no_reply_and_do_not_affect_the_job`, `tests/pods/walk.rs::printed_manifest_survives_a_killed_pod_and_port_scans` |
//! | F45 | a rank of another job connects to the store | `tests/store.rs::store_rejects_a_different_key_epoch_job_or_rank`, `tests/pods/joining.rs::node_of_another_job_is_refused` |
//! | F46 | a process of an earlier epoch reconnects | `tests/pods/again.rs::node_with_a_killed_agent_joins_with_a_new_agent`, `tests/store.rs::store_rejects_a_different_key_epoch_job_or_rank`, `tests/faults/agent.rs::agent_ignores_messages_of_earlier_epochs`, `src/wire/frame.rs::decoder_accepts_only_the_renewed_epoch` |
//! | F47 | a full log volume | `tests/faults/output.rs::full_log_disk_is_reported_once`, `src/report/logs/files.rs::write_error_is_reported_once` |
//! | F48 | a log volume that hangs | `tests/faults/output.rs::hanging_log_disk_blocks_neither_screen_nor_workers`, `tests/faults/output.rs::hanging_record_disk_does_not_block_the_end`, `tests/faults/output.rs::hanging_disk_is_reported_before_the_start`, `src/report/logs/files.rs::file_marks_its_gaps` |
//! | F49 | a terminal stops reading | `tests/faults/output.rs::blocked_terminal_does_not_block_workers`, `tests/faults/output.rs::blocked_screen_drops_lines_and_counts_them` |
//! | F50 | the output is closed | `tests/faults/output.rs::closed_stdout_does_not_end_the_job` |
//! | F51 | a line without end | `tests/faults/output.rs::prove_endless_line`, `tests/faults/output.rs::line_over_the_limit_is_continued` |
//! | F52 | a worker prints escapes and prefixes | `tests/faults/output.rs::escape_sequences_of_several_workers_are_escaped` |
//! | F53 | a low limit of open files | `tests/faults/options.rs::soft_limit_of_descriptors_is_raised`, `tests/faults/options.rs::descriptors_are_checked_before_anything_starts` |
//! | F54 | too few file descriptors | `tests/faults/options.rs::descriptors_are_checked_before_anything_starts` |
//! | F55 | no process can be created | `tests/faults/options.rs::worker_without_threads_reports_an_error`, `src/job/cause/failure.rs::start_failure_selects_exit_status` |
//! | F56 | unlimited output with limited memory | `tests/faults/output.rs::prove_endless_line` |
//! | F57 | the wall clock jumps | `tests/architecture.rs::banned_words_stay_in_their_modules` |
//! | F58 | a machine is suspended and resumed | `src/simulation/prove.rs::prove_simulate` |
//! | F66 | a crash loop | `src/job/state/restarting.rs::crash_loop_pause_doubles_up_to_a_bound` |
//! | F68 | two jobs request the same GPUs | `tests/faults/claims.rs::gpu_in_use_refuses_a_second_job`, `tests/faults/claims.rs::gpu_lock_is_held_until_agent_and_shim_exit`, `tests/faults/claims.rs::gpu_lock_survives_a_restart`, `tests/faults/claims.rs::gpu_is_shared_by_hosts_of_one_job` |
//! | F69 | node 0 is replaced | `tests/pods/again.rs::replaced_node_0_continues_at_the_next_epoch`, `tests/pods/again.rs::pods_reconnect_after_pod_0_is_evicted`, `tests/pods/again.rs::nodes_reconnect_if_node_0_is_lost_before_the_start` |
//! | F70 | nodes are started at different times | `tests/pods/joining.rs::missing_node_is_named_on_every_screen` |
//! | F71 | standard input is closed or empty | `tests/faults/options.rs::closed_stdin_is_end_of_file` |
//! | F72 | remuda itself panics | `tests/faults/agent.rs::agent_panic_is_reported_and_stops_workers` |
//! | F73 | a scheduler evicts the nodes | `tests/faults/restarts.rs::pre_term_signal_precedes_sigterm`, `tests/pods/again.rs::evicted_pod_is_replaced_in_the_next_epoch` |
//! | F74 | one process after the other is killed | `tests/ssh/chaos.rs::prove_chaos`, `tests/faults/random.rs::prove_random_kill`, `tests/faults/random.rs::prove_stop_then_kill`, `src/simulation/prove.rs::prove_simulate` |
//! | B77 | an empty frame, or one above the limit | `src/wire/frame.rs::decoder_rejects_long_frame_before_allocation`, `src/wire/frame.rs::decoder_reports_garbage_as_error`, `tests/pods/strangers.rs::foreign_connections_get_no_reply_and_do_not_affect_the_job` |
//! | B78 | half a frame, then silence | `tests/pods/strangers.rs::silent_connections_do_not_delay_nodes` |
//! | B79 | another version of remuda | `tests/pods/strangers.rs::foreign_connections_get_no_reply_and_do_not_affect_the_job`, `src/secure/flight.rs::first_flight_names_foreign_protocols` |
//! | B80 | HTTP, TLS or ssh on a port of remuda | `tests/pods/strangers.rs::foreign_connections_get_no_reply_and_do_not_affect_the_job`, `tests/pods/walk.rs::printed_manifest_survives_a_killed_pod_and_port_scans` |
//! | B81 | another key, job, epoch or node | `tests/pods/joining.rs::node_with_a_different_key_is_rejected_without_a_reply`, `tests/pods/joining.rs::node_of_another_job_is_refused`, `tests/pods/joining.rs::second_process_of_a_node_is_refused`, `src/secure/handshake.rs::handshake_requires_the_right_key_and_epoch` |
//! | B82 | a replayed handshake, frames out of order | `tests/pods/strangers.rs::replayed_handshake_is_rejected`, `src/secure/handshake.rs::channel_rejects_repeated_and_reordered_messages` |
//! | B83 | many silent connections | `tests/pods/strangers.rs::silent_connections_do_not_delay_nodes` |
//! | B84 | a node reports on a worker of another node | `src/launch/scale.rs::prove_scale` |
//! | B85 | a node sends a message twice that must be sent once | `src/launch/scale.rs::prove_scale`, `src/job/state/node_loss.rs::worker_exit_after_the_loss_of_its_node_is_ignored` |
//!
//! Not tested, with the reason:
//!
//! * F29 beyond the error that names the missing rank: a group detects it at the timeout of its operation,
//!   600 s, which is too long for a test.
//! * F32 with delayed packets: they need `netem`, which many kernels lack. The lease does not depend on
//!   single packets; slow links, links that lose packets and links without packets are tested.
//! * F37 with the penalties of OpenSSH 9.8: its sshd sends the reason only as a debug message, so the error
//!   reports a dropped connection, after four attempts. If the client shows debug messages, the reason is
//!   recognized and the connection is not retried (`src/transport/ssh/fault.rs`).
//! * F57 by setting the wall clock: that needs a separate machine. Decisions use only the monotonic clock,
//!   which the architecture test enforces.
//! * F58 by suspending a machine: that needs a separate machine. Its monotonic clock does not advance while
//!   it is suspended; a peer that was awake does not wait, and the job ends as in F25.
