//! The macro that makes the methods, their calls and their routes from the rows of one table.

/// Declares the methods.
macro_rules! methods {
    ($(
        $(#[doc = $doc:literal])+
        $name:ident = $wire:literal, $params:ty => $answer:ty, $access:expr
            $(, $verb:ident $paths:expr $(, of $subject:ident)? $(, or $refusals:expr)?)?;
    )+) => {
        /// A method of the engine.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Method {
            $($(#[doc = $doc])+ $name,)+
        }

        impl Method {
            /// Every method, in the order of the table.
            pub const ALL: &[Self] = &[$(Self::$name),+];

            /// The name on the wire.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => $wire),+ }
            }

            /// Finds a method by its name on the wire.
            pub fn find(name: &str) -> Option<Self> {
                match name { $($wire => Some(Self::$name),)+ _ => None }
            }

            /// The callers that it accepts.
            pub const fn access(self) -> CallAccess {
                match self { $(Self::$name => $access),+ }
            }

            /// One sentence about it, for documentation.
            pub fn summary(self) -> &'static str {
                match self { $(Self::$name => concat!($($doc),+).trim()),+ }
            }

            /// The route over HTTP; none: it is called in frames alone, or the server has handlers of its own for it.
            pub const fn route(self) -> Option<MethodRoute> {
                match self { $(Self::$name => methods!(@route $params, $answer $(, $verb $paths $(, of $subject)? $(, or $refusals)?)?),)+ }
            }
        }

        /// A call with its parameters.
        #[derive(Debug)]
        pub(crate) enum MethodCall {
            $($name($params),)+
        }

        impl MethodCall {
            /// Reads the parameters of a method.
            ///
            /// # Errors
            ///
            /// If they are not what the method takes.
            pub(crate) fn read(method: Method, params: Value) -> Result<Self, EngineError> {
                match method { $(Method::$name => read_params(method, params).map(Self::$name),)+ }
            }
        }

        $(
            #[doc = concat!("`", $wire, "`:")]
            $(#[doc = $doc])+
            #[derive(Clone, Copy, Debug)]
            pub struct $name;

            impl EngineMethod for $name {
                const METHOD: Method = Method::$name;
                type Params = $params;
                type Answer = $answer;
            }
        )+
    };
    (@route $params:ty, $answer:ty) => { None };
    (@route $params:ty, $answer:ty, $verb:ident $paths:expr $(, of $subject:ident)? $(, or $refusals:expr)?) => {
        Some(MethodRoute {
            verb: Verb::$verb,
            paths: &$paths,
            subject: methods!(@subject $($subject)?),
            refusals: methods!(@refusals $($refusals)?),
            params: SchemaGenerator::subschema_for::<$params>,
            answer: SchemaGenerator::subschema_for::<$answer>,
        })
    };
    (@subject) => { None };
    (@subject $subject:ident) => { Some(PathSubject::$subject) };
    (@refusals) => { &[] };
    (@refusals $refusals:expr) => { &$refusals };
}
