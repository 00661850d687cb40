//! The arguments of a tool, read from the signature of a function, and the errors of signatures that tools cannot have.

use quote::ToTokens;
use syn::{
    Attribute, Error, FnArg, Ident, ItemFn, Pat, PatType, Result, Type, TypeImplTrait, TypeReference,
    visit::{self, Visit},
};

use crate::docs::{self, Docs};

/// Arguments of a tool.
pub(crate) struct Signature {
    pub(crate) docs: Docs,
    pub(crate) context: Option<Context>,
    pub(crate) arguments: Vec<Argument>,
}

/// Form in which the function takes the context of the call.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Context {
    Borrowed,
    Owned,
}

/// An argument that the model provides.
pub(crate) struct Argument {
    pub(crate) name: Ident,
    pub(crate) kind: Kind,
    pub(crate) description: String,
    /// Attributes for serde and schemars.
    pub(crate) attributes: Vec<Attribute>,
}

/// Type that an argument is decoded as.
pub(crate) enum Kind {
    /// The type in the signature.
    Owned(Box<Type>),
    /// A `String`, which the function borrows.
    Text,
}

/// All errors of a signature, which are reported together.
#[derive(Default)]
struct Faults(Option<Error>);

impl Faults {
    fn add(&mut self, at: impl ToTokens, message: &str) {
        let error = Error::new_spanned(at, message);
        match &mut self.0 {
            Some(all) => all.combine(error),
            none => *none = Some(error),
        }
    }
}

impl Signature {
    pub(crate) fn read(function: &ItemFn) -> Result<Self> {
        let mut faults = Faults::default();
        check_function(function, &mut faults);
        let docs = Docs::read(&function.attrs);
        let mut signature = Self { docs, context: None, arguments: Vec::new() };
        for (place, input) in function.sig.inputs.iter().enumerate() {
            match input {
                FnArg::Receiver(receiver) => faults.add(receiver, "a tool is a free function and cannot take `self`"),
                FnArg::Typed(typed) => signature.take(place, typed, &mut faults),
            }
        }
        signature.spread_descriptions(&mut faults);
        faults.0.map_or(Ok(signature), Err)
    }

    fn take(&mut self, place: usize, typed: &PatType, faults: &mut Faults) {
        if let Some(context) = context(&typed.ty) {
            if place > 0 {
                faults.add(&typed.ty, "the context of a call comes first");
            }
            self.context = Some(context);
            return;
        }
        let name = match &*typed.pat {
            Pat::Ident(name) if name.by_ref.is_none() && name.subpat.is_none() => name.ident.clone(),
            pattern => {
                return faults.add(pattern, "the model gives arguments by name, so this must be a name, not a pattern");
            }
        };
        let Some(kind) = kind(&typed.ty, faults) else { return };
        let description = docs::text(&typed.attrs);
        let attributes = typed.attrs.iter().filter(|attribute| is_for_decoding(attribute)).cloned().collect();
        self.arguments.push(Argument { name, kind, description, attributes });
    }

    /// Sets the description of each argument without a doc comment from the doc comment of the function.
    fn spread_descriptions(&mut self, faults: &mut Faults) {
        for listed in &self.docs.arguments {
            let named = |argument: &&mut Argument| argument.name.to_string().trim_start_matches("r#") == listed.name;
            match self.arguments.iter_mut().find(named) {
                Some(argument) if argument.description.is_empty() => argument.description.clone_from(&listed.text),
                Some(_) => {}
                None => {
                    let name = Ident::new("_", listed.span);
                    faults.add(name, &format!("the function has no argument `{}`", listed.name));
                }
            }
        }
    }
}

/// Attributes of an argument that are moved to the field.
pub(crate) fn is_for_decoding(attribute: &Attribute) -> bool {
    attribute.path().is_ident("serde") || attribute.path().is_ident("schemars")
}

fn check_function(function: &ItemFn, faults: &mut Faults) {
    let signature = &function.sig;
    if signature.asyncness.is_none() {
        faults.add(signature.fn_token, "a tool is an `async fn`");
    }
    if !signature.generics.params.is_empty() {
        faults.add(&signature.generics, "a tool cannot be generic: the model needs to know its arguments");
    } else if let Some(clause) = &signature.generics.where_clause {
        faults.add(clause, "a tool cannot be generic: the model needs to know its arguments");
    }
    if let Some(token) = &signature.constness {
        faults.add(token, "a tool cannot be `const`");
    }
    if let Some(token) = &signature.unsafety {
        faults.add(token, "a tool cannot be `unsafe`: a model chooses its arguments");
    }
    if let Some(abi) = &signature.abi {
        faults.add(abi, "a tool is a plain Rust function");
    }
}

/// Whether a type is the context of a call.
fn context(ty: &Type) -> Option<Context> {
    let is_context = |ty: &Type| match ty {
        Type::Path(path) => path.path.segments.last().is_some_and(|last| last.ident == "ToolContext"),
        _ => false,
    };
    match ty {
        Type::Reference(reference) if reference.mutability.is_none() && is_context(&reference.elem) => {
            Some(Context::Borrowed)
        }
        ty => is_context(ty).then_some(Context::Owned),
    }
}

fn kind(ty: &Type, faults: &mut Faults) -> Option<Kind> {
    if let Type::Reference(reference) = ty
        && reference.mutability.is_none()
        && reference.lifetime.is_none()
        && matches!(&*reference.elem, Type::Path(path) if path.path.is_ident("str"))
    {
        return Some(Kind::Text);
    }
    let mut borrowed = Unowned { faults, found: false };
    borrowed.visit_type(ty);
    (!borrowed.found).then(|| Kind::Owned(Box::new(ty.clone())))
}

/// Finds parts of a type that cannot be decoded.
struct Unowned<'a> {
    faults: &'a mut Faults,
    found: bool,
}

impl<'ast> Visit<'ast> for Unowned<'_> {
    fn visit_type_reference(&mut self, reference: &'ast TypeReference) {
        self.found = true;
        self.faults
            .add(reference, "arguments are decoded from JSON, so they are owned: `String`, `Vec<T>` (or plain `&str`)");
    }

    fn visit_type_impl_trait(&mut self, ty: &'ast TypeImplTrait) {
        self.found = true;
        self.faults.add(ty, "the model needs to know the argument's type: name one");
    }

    fn visit_type(&mut self, ty: &'ast Type) {
        visit::visit_type(self, ty);
    }
}
