//! SQL Server as a client sees it, without one: a server of the tests' own speaks TDS, checks every byte that it is sent
//! and answers in the format that Microsoft publishes (MS-TDS). What a real server makes of the T-SQL is not tested here.

mod calls;
mod damage;
mod login;
mod server;
mod whole;
mod words;
mod world;
