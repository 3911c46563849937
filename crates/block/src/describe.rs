use std::fmt;

/// What a stack of devices is made of: every assembled stack prints itself as a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Description {
    /// The device's kind and its own parameters, one line.
    pub title: String,
    /// The devices below it.
    pub children: Vec<Description>,
}

impl Description {
    /// A device with nothing below it.
    pub fn leaf(title: impl Into<String>) -> Self {
        Self {
            title: title.into(),
            children: Vec::new(),
        }
    }

    /// A device over others.
    pub fn over(title: impl Into<String>, children: Vec<Description>) -> Self {
        Self {
            title: title.into(),
            children,
        }
    }

    fn write(&self, f: &mut fmt::Formatter<'_>, indent: &str) -> fmt::Result {
        for (index, child) in self.children.iter().enumerate() {
            let last = index + 1 == self.children.len();
            let (branch, below) = if last {
                ("└─ ", "   ")
            } else {
                ("├─ ", "│  ")
            };
            write!(f, "\n{indent}{branch}{}", child.title)?;
            child.write(f, &format!("{indent}{below}"))?;
        }
        Ok(())
    }
}

impl fmt::Display for Description {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.title)?;
        self.write(f, "")
    }
}
