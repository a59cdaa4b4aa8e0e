//! What a node executes if the nodes have no secret in common: its own command line and nothing else.
//!
//! Every process that knows the public name of the job can claim to be node 0. The agent of this node therefore
//! receives no program, no argument, no variable and no file name from there: they are replaced by those
//! of this node's own plan.

use std::collections::BTreeMap;
use std::io;

use crate::base::{Epoch, NodeRank};
use crate::launch::options::Options;
use crate::launch::startup::requests::{own_start_request, prepare_request};
use crate::plan::LaunchPlan;
use crate::transport::dial::LinkFilter;
use crate::wire::{self, Decoder, NodeRoster, ToAgent};

/// The plan of this node, and the messages of node 0 so far.
pub(super) struct OwnLine {
    /// All nodes that may take part.
    plan: LaunchPlan,
    /// The nodes of the epoch that begins, as node 0 has listed them.
    epoch_plan: Option<LaunchPlan>,
    options: Options,
    node: NodeRank,
    decoder: Decoder,
}

impl OwnLine {
    pub(super) fn new(plan: LaunchPlan, options: Options, node: NodeRank) -> Self {
        Self { plan, epoch_plan: None, options, node, decoder: Decoder::default() }
    }

    /// The plan of an epoch with the nodes of a roster, which are nodes of this plan, in its order. The lines of
    /// other nodes decide how many workers these start; this node starts those of its own line.
    fn plan_of_members(&self, roster: &[u8]) -> io::Result<LaunchPlan> {
        let invalid = || io::Error::from(io::ErrorKind::InvalidData);
        let roster = NodeRoster::unpack(roster).map_err(|_| invalid())?;
        let mut named = roster.nodes.iter().peekable();
        let mut members = BTreeMap::new();
        for node in &self.plan.nodes {
            if let Some((_, workers)) = named.next_if(|(host, _)| *host == node.host.as_str()) {
                members.insert(node.node_rank, *workers as usize);
            }
        }
        let own = self.plan.nodes[self.node.index()].workers.len();
        let is_own = members.get(&self.node).is_none_or(|workers| *workers == own);
        if named.next().is_some() || !is_own {
            return Err(invalid());
        }
        Ok(self.plan.with_workers(&members).for_members(|node| members.contains_key(&node)))
    }

    /// The message for the agent in the place of one of node 0; `None`: there is none.
    fn own_message(&mut self, epoch: Epoch, message: ToAgent) -> io::Result<Option<ToAgent>> {
        if let ToAgent::Roster(bytes) = &message {
            self.epoch_plan = Some(self.plan_of_members(bytes)?);
        }
        let Self { plan, epoch_plan, options, node, .. } = self;
        Ok(match message {
            ToAgent::Prepare(_) => {
                let own = prepare_request(plan, options, &plan.nodes[node.index()], epoch);
                Some(ToAgent::Prepare(Box::new(own)))
            }
            ToAgent::Start(from_node_0) => {
                let plan = epoch_plan.as_ref().unwrap_or(plan);
                own_start_request(plan, options, *node, &from_node_0, epoch).map(ToAgent::Start)
            }
            // Workers of this node read no input of another node.
            ToAgent::Stdin { .. } => None,
            ToAgent::Examine(_) | ToAgent::Probe(_) => {
                return Err(io::Error::from(io::ErrorKind::InvalidData));
            }
            ToAgent::Hello(_)
            | ToAgent::Signal(_)
            | ToAgent::Kill
            | ToAgent::PeerGone(_)
            | ToAgent::Consumed(_)
            | ToAgent::Heartbeat { .. }
            | ToAgent::Pause
            | ToAgent::Resume
            | ToAgent::Bye
            | ToAgent::NextEpoch
            | ToAgent::Roster(_)
            | ToAgent::SkipToEpoch(_)
            | ToAgent::ReportSuspended => Some(message),
        })
    }
}

impl LinkFilter for OwnLine {
    fn filter(&mut self, bytes: &[u8]) -> io::Result<Vec<u8>> {
        self.decoder.push(bytes);
        let mut passed = Vec::new();
        while let Some(message) = self.decoder.message::<ToAgent>().map_err(io::Error::other)? {
            let epoch = self.decoder.epoch().expect("a frame was decoded");
            match message {
                ToAgent::NextEpoch => self.decoder.begin_epoch(epoch.next()),
                ToAgent::SkipToEpoch(next) => self.decoder.begin_epoch(next),
                _ => {}
            }
            if let Some(own) = self.own_message(epoch, message)? {
                passed.extend(wire::encode(epoch, &own));
            }
        }
        Ok(passed)
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;
    use crate::base::{HostName, LocalRank, Rank, env_vars};
    use crate::launch::scale::{options, plan_of};
    use crate::secure::JobKey;
    use crate::wire::{Start, WorkerStart};

    /// What the agent of node 1 receives of a message.
    fn received(message: &ToAgent) -> io::Result<Vec<ToAgent>> {
        let mut own = OwnLine::new(plan_of(2), options(), NodeRank(1));
        let mut decoder = Decoder::default();
        // Frames arrive in any pieces.
        for byte in wire::encode(Epoch(3), message) {
            decoder.push(&own.filter(&[byte])?);
        }
        let mut messages = Vec::new();
        while let Some(message) = decoder.message().expect("valid frames") {
            messages.push(message);
        }
        Ok(messages)
    }

    fn text(bytes: &[u8]) -> Vec<u8> {
        bytes.to_vec()
    }

    #[test]
    fn node_executes_its_own_line_whatever_it_receives() {
        let worker = WorkerStart {
            rank: Rank(0),
            local_rank: LocalRank(0),
            argv: vec![text(b"rm"), text(b"-rf")],
            env: vec![
                (text(b"LD_PRELOAD"), text(b"/tmp/x.so")),
                (text(b"MASTER_ADDR"), text(b"10.0.0.1")),
                (text(b"MASTER_PORT"), text(b"4000")),
            ],
            env_default: vec![(text(b"PATH"), text(b"/tmp"))],
            env_without_gpu: Vec::new(),
            stdin: true,
        };
        let store: SocketAddr = "10.0.0.1:4001".parse().expect("an address");
        let from_node_0 =
            Start { workers: vec![worker], store: Some(store), window_bytes: 9, group_limit_ms: 8 };
        let [ToAgent::Start(own)] = &received(&ToAgent::Start(from_node_0)).expect("passed")[..]
        else {
            panic!("one message")
        };
        assert_eq!((own.store, own.window_bytes, own.group_limit_ms), (Some(store), 9, 8));
        let plan = plan_of(2);
        assert_eq!(own.workers.len(), plan.nodes[1].workers.len());
        let first = plan.nodes[0].workers.len() as u32;
        for (worker, rank) in own.workers.iter().zip(first..) {
            assert_eq!((worker.rank, &worker.argv), (Rank(rank), &vec![text(b"true")]));
            let value = |name: &[u8]| {
                let found = worker.env.iter().find(|(found, _)| found == name);
                found.map(|(_, value)| String::from_utf8_lossy(value).into_owned())
            };
            // The line gives address and port.
            assert_eq!(value(b"MASTER_ADDR").as_deref(), Some("127.0.0.1"));
            assert_eq!(value(b"MASTER_PORT").as_deref(), Some("29500"));
            assert_eq!(value(b"RANK"), Some(rank.to_string()));
            assert_eq!(value(b"LD_PRELOAD"), None);
            assert!(!worker.env_default.iter().any(|(name, _)| name == b"PATH"));
            assert!(!worker.stdin);
        }
    }

    /// The ranks and the number of all workers that node 1 starts after a roster.
    fn own_ranks(nodes: &[(&HostName, u32)]) -> io::Result<(Vec<u32>, String)> {
        let mut own = OwnLine::new(plan_of(2), options(), NodeRank(1));
        let nodes = nodes.iter().map(|(host, of)| (host.to_string(), *of)).collect();
        own.own_message(Epoch(0), ToAgent::Roster(NodeRoster { nodes }.pack()))?;
        let start = Start { workers: Vec::new(), store: None, window_bytes: 1, group_limit_ms: 1 };
        let Some(ToAgent::Start(start)) = own.own_message(Epoch(0), ToAgent::Start(start))? else {
            panic!("one message")
        };
        let is_size = |(name, _): &&(Vec<u8>, Vec<u8>)| name == env_vars::WORLD_SIZE.as_bytes();
        let size = start.workers[0].env.iter().find(is_size).expect("it is set");
        let ranks = start.workers.iter().map(|worker| worker.rank.0).collect();
        Ok((ranks, String::from_utf8_lossy(&size.1).into_owned()))
    }

    #[test]
    fn ranks_are_counted_through_the_workers_of_other_lines() {
        let plan = plan_of(2);
        let [first, own] = [&plan.nodes[0].host, &plan.nodes[1].host];
        let size = plan.nodes[1].workers.len() as u32;
        let ranks = |first| (first..first + size).collect::<Vec<_>>();
        let found = own_ranks(&[(first, 5), (own, size)]).expect("passed");
        assert_eq!(found, (ranks(5), (5 + size).to_string()));
        let found = own_ranks(&[(own, size)]).expect("passed");
        assert_eq!(found, (ranks(0), size.to_string()));
        assert!(own_ranks(&[(first, 5), (own, size + 1)]).is_err(), "its own line decides");
        assert!(own_ranks(&[(own, size), (first, 5)]).is_err(), "the order is that of the line");
    }

    #[test]
    fn node_checks_its_own_files() {
        let plan = plan_of(2);
        let mut from_node_0 = prepare_request(&plan, &options(), &plan.nodes[1], Epoch(3));
        let own = from_node_0.clone();
        from_node_0.program = text(b"/tmp/x");
        from_node_0.venv_script = Some(text(b"/tmp/y"));
        from_node_0.key = JobKey::of_public_name("other");
        let messages = received(&ToAgent::Prepare(Box::new(from_node_0))).expect("passed");
        assert_eq!(messages, [ToAgent::Prepare(Box::new(own))]);
    }

    #[test]
    fn other_messages_pass_or_end_the_link() {
        for message in [ToAgent::Signal(15), ToAgent::Kill, ToAgent::NextEpoch, ToAgent::Bye] {
            assert_eq!(received(&message).expect("passed"), [message]);
        }
        let input = ToAgent::Stdin { rank: Rank(1), bytes: text(b"rm -rf /") };
        assert_eq!(received(&input).expect("dropped"), []);
        assert!(received(&ToAgent::Probe(Vec::new())).is_err());
    }
}
