//! The generated code of a tool: a unit struct with the name of the function, a struct for the arguments, and the `Tool`
//! trait.

use proc_macro2::TokenStream;
use quote::{format_ident, quote, quote_spanned};
use syn::{
    Attribute, Error, FnArg, ItemFn, LitStr, Path, Result, ReturnType, ext::IdentExt as _, parse_quote,
    spanned::Spanned as _,
};

use crate::{
    docs,
    options::{self, Options},
    signature::{Argument, Context, Kind, Signature, is_for_decoding},
};

pub(crate) fn tool(options: &Options, function: ItemFn, signature: Signature) -> Result<TokenStream> {
    let ident = function.sig.ident.clone();
    let name = match &options.name {
        Some(name) => name.clone(),
        None => {
            let name = LitStr::new(&ident.unraw().to_string(), ident.span());
            options::check_name(&name)?;
            name
        }
    };
    let description = match &options.description {
        Some(description) => description.value(),
        None => signature.docs.description.clone(),
    };
    if description.is_empty() {
        let message = "the model needs a description: write a doc comment, or `#[tool(description = \"…\")]`";
        return Err(Error::new(ident.span(), message));
    }
    let names: Path = join(&options.from, "__private");
    let vis = &function.vis;
    let (of_all, of_struct, of_function) = sorted(&function.attrs);
    let fields = fields(&names, &signature.arguments);
    let schema = schema(&names, options, &name, &description);
    let spec = spec(&names);
    let rules = rules(&names, options);
    let call = call(&names, &function, &signature);
    let direct = direct(&function, of_function);
    Ok(quote! {
        #(#of_all)*
        #(#of_struct)*
        #[allow(non_camel_case_types)]
        #[derive(Clone, Copy, Debug)]
        #vis struct #ident;

        #(#of_all)*
        const _: () = {
            #fields
            #schema

            impl #ident {
                /// Does the same without a model: calls the function itself.
                #direct
            }

            #[#names::async_trait]
            impl #names::Tool for #ident {
                #spec
                #rules
                #call
            }
        };
    })
}

/// Path of a name in a crate.
fn join(path: &Path, name: &str) -> Path {
    let name = format_ident!("{name}");
    parse_quote!(#path::#name)
}

/// Attributes by their target: all items, the struct, the function.
fn sorted(attributes: &[Attribute]) -> (Vec<&Attribute>, Vec<&Attribute>, Vec<&Attribute>) {
    let (of_all, rest): (Vec<_>, Vec<_>) = attributes.iter().partition(|attribute| attribute.path().is_ident("cfg"));
    let is_of_struct = |attribute: &&Attribute| docs::is_doc(attribute) || attribute.path().is_ident("deprecated");
    let (of_struct, of_function) = rest.into_iter().partition(is_of_struct);
    (of_all, of_struct, of_function)
}

/// The schema of the arguments, which is computed once.
fn schema(names: &Path, options: &Options, name: &LitStr, description: &str) -> TokenStream {
    let lenient = options.lenient.then(|| quote!(.lenient()));
    quote! {
        fn __schema() -> &'static #names::FunctionSchema {
            static SCHEMA: ::std::sync::LazyLock<#names::FunctionSchema> = ::std::sync::LazyLock::new(|| {
                #names::FunctionSchema::of::<__Arguments>(#name, #description) #lenient
            });
            &SCHEMA
        }
    }
}

/// The struct that arguments are decoded into.
fn fields(names: &Path, arguments: &[Argument]) -> TokenStream {
    let (serde, schemars) = (path_text(&join(names, "serde")), path_text(&join(names, "schemars")));
    let fields = arguments.iter().map(|Argument { name, kind, description, attributes }| {
        let doc = (!description.is_empty()).then(|| quote!(#[doc = #description]));
        let ty = match kind {
            Kind::Owned(ty) => quote!(#ty),
            Kind::Text => quote!(::std::string::String),
        };
        quote!(#doc #(#attributes)* #name: #ty,)
    });
    quote! {
        #[derive(#names::serde::Deserialize, #names::schemars::JsonSchema)]
        #[serde(crate = #serde)]
        #[schemars(crate = #schemars)]
        struct __Arguments {
            #(#fields)*
        }
    }
}

fn path_text(path: &Path) -> String {
    quote!(#path).to_string().replace(' ', "")
}

fn spec(names: &Path) -> TokenStream {
    quote! {
        fn spec(&self) -> #names::ToolSpec {
            __schema().spec().clone()
        }

        fn fault(&self) -> ::std::option::Option<::std::string::String> {
            __schema().fault().map(|fault| ::std::format!("{fault}; make it lenient to send its schema as it is"))
        }
    }
}

fn rules(names: &Path, options: &Options) -> Option<TokenStream> {
    let approval = options.needs_approval.then(|| quote!(rules.approval = #names::Approval::Always;));
    let timeout = options
        .timeout_ms
        .map(|limit| quote!(rules.timeout = ::std::option::Option::Some(::std::time::Duration::from_millis(#limit));));
    if approval.is_none() && timeout.is_none() {
        return None;
    }
    Some(quote! {
        fn rules(&self) -> &#names::ToolRules {
            static RULES: ::std::sync::LazyLock<#names::ToolRules> = ::std::sync::LazyLock::new(|| {
                let mut rules = #names::ToolRules::default();
                #approval
                #timeout
                rules
            });
            &RULES
        }
    })
}

fn call(names: &Path, function: &ItemFn, signature: &Signature) -> TokenStream {
    let ident = &function.sig.ident;
    let fields: Vec<_> = signature.arguments.iter().map(|argument| &argument.name).collect();
    let context = signature.context.map(|context| match context {
        Context::Borrowed => quote!(__call,),
        Context::Owned => quote!(__call.clone(),),
    });
    let given = signature.arguments.iter().map(|Argument { name, kind, .. }| match kind {
        Kind::Owned(_) => quote!(#name),
        Kind::Text => quote!(&#name),
    });
    let returned = match &function.sig.output {
        ReturnType::Default => ident.span(),
        ReturnType::Type(_, ty) => ty.span(),
    };
    let into = quote_spanned!(returned=> #names::IntoToolOutput::into_tool_output(__answer));
    quote! {
        async fn call(
            &self,
            __call: &#names::ToolContext,
            __arguments: &str,
        ) -> ::std::result::Result<#names::ToolOutput, #names::BoxError> {
            let __Arguments { #(#fields),* } = #names::decode_arguments(__arguments)?;
            let __answer = #ident::direct(#context #(#given),*).await;
            #into
        }
    }
}

/// The function itself, without attributes that only tools have.
fn direct(function: &ItemFn, attributes: Vec<&Attribute>) -> TokenStream {
    let mut signature = function.sig.clone();
    signature.ident = format_ident!("direct", span = signature.ident.span());
    for input in &mut signature.inputs {
        if let FnArg::Typed(typed) = input {
            typed.attrs.retain(|attribute| !docs::is_doc(attribute) && !is_for_decoding(attribute));
        }
    }
    let (vis, block) = (&function.vis, &function.block);
    quote!(#(#attributes)* #vis #signature #block)
}
