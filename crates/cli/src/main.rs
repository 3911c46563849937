//! The `ashlar` binary: reads the command line, assembles what it asks for, and turns the outcome
//! into an exit code. The only room that knows all others.

mod args;
mod attach;
mod exit;
mod lab;
mod log;
mod node;
mod nvme;
mod output;
mod serve;
mod serve_shared;
mod sim;
mod stack;

use std::process::ExitCode;

use clap::{CommandFactory, Parser};

use args::{Arguments, Command, SimCommand};
use exit::Failure;

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            // Help and version are answers, not errors. Printing fails only if the reader is gone.
            let _ = error.print();
            return if error.use_stderr() {
                exit::USAGE.into()
            } else {
                ExitCode::SUCCESS
            };
        }
    };
    let log = match arguments.command.log_options() {
        Some(options) => log::begin(options),
        None => log::Log::none(),
    };
    let ended = run(arguments.command);
    drop(log);
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}

fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::Serve(arguments) => serve::run(&arguments),
        Command::Node(arguments) => node::daemon(&arguments),
        Command::Pool(command) => node::pool(&command),
        Command::Volume(command) => node::volume(&command),
        Command::Cache(command) => node::cache(&command),
        Command::Service(command) => node::service(&command),
        Command::Cluster(command) => node::cluster(&command),
        Command::Witness(arguments) => node::witness(&arguments),
        Command::Events(arguments) => node::events(&arguments),
        Command::Attach(arguments) => attach::attach(&arguments),
        Command::Detach(arguments) => attach::detach(&arguments),
        Command::AttachGuardian(arguments) => attach::guardian(&arguments),
        Command::AttachServer(arguments) => attach::server(&arguments),
        Command::ServiceGuard(arguments) => node::service_guard(&arguments),
        Command::Nvme(command) => nvme::run(&command),
        Command::Lab(command) => lab::run(&command),
        Command::Sim(SimCommand::Wire(arguments)) => sim::wire(&arguments),
        Command::Sim(SimCommand::Engine(arguments)) => sim::engine(&arguments),
        Command::Sim(SimCommand::Cluster(arguments)) => sim::cluster(&arguments),
        Command::Completions { shell } => {
            let mut command = Arguments::command();
            clap_complete::generate(shell, &mut command, "ashlar", &mut std::io::stdout());
            Ok(())
        }
    }
}
