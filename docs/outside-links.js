// Links that leave docs/ lead to the repository: a built book does not hold those files. `path_to_root` comes from mdBook.
const outside = path_to_root + "../";
for (const link of document.querySelectorAll("main a[href]")) {
    const href = link.getAttribute("href");
    if (href.startsWith(outside)) {
        const path = href.slice(outside.length).replace(/\.html(#|$)/, ".md$1");
        link.href = "https://github.com/sandbar-rs/sandbar/blob/main/" + path;
    }
}
