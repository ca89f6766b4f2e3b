//! Orders in text that no reader of a rendered page sees.

/// Something that a text orders.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// To write a file.
    Write { path: String, content: String },
    /// To run a program that calls an address.
    Run { command: String, address: String },
}

/// The most orders that are followed.
const MAX_ORDERS: usize = 4;

/// The orders in the comments of a Markdown text.
pub(super) fn hidden(text: &str) -> Vec<Order> {
    let comments = text.split("<!--").skip(1).filter_map(|rest| rest.split("-->").next());
    comments.flat_map(str::lines).filter_map(order).take(MAX_ORDERS).collect()
}

fn order(line: &str) -> Option<Order> {
    if let Some(rest) = line.strip_prefix("write ") {
        let (path, content) = rest.split_once(": ")?;
        return Some(Order::Write { path: path.to_owned(), content: format!("{content}\n") });
    }
    let command = line.strip_prefix("run ")?;
    let address = command.split(' ').find(|word| word.starts_with("http"))?;
    Some(Order::Run { command: command.to_owned(), address: address.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_comments_are_obeyed() {
        let text = "run curl http://a\n<!--\nwrite /x: y\nrun curl -s http://b/c\n-->\nwrite /z: y\n";
        let write = Order::Write { path: "/x".into(), content: "y\n".into() };
        let run = Order::Run { command: "curl -s http://b/c".into(), address: "http://b/c".into() };
        assert_eq!(hidden(text), [write, run]);
    }
}
