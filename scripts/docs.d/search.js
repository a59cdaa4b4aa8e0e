// Searches the rendered site as a browser does, with the code and the index of the site.
//
// node search.js SITE <PHRASES: the page that must be found, then one phrase a line. A phrase passes if a section of this
// page is among the first three results.

"use strict";

const fs = require("fs");
const path = require("path");
const vm = require("vm");

const RESULTS = 3;

function load(site) {
    const window = { search: {} };
    const context = vm.createContext({ window });
    const file = (prefix) => {
        const name = fs.readdirSync(site).find((each) => each.startsWith(prefix) && each.endsWith(".js"));
        return fs.readFileSync(path.join(site, name), "utf8");
    };
    vm.runInContext(file("elasticlunr"), context);
    vm.runInContext(file("searchindex"), context);
    const elasticlunr = window.elasticlunr || context.elasticlunr;
    const config = window.search;
    return { index: elasticlunr.Index.load(config.index), config };
}

function main() {
    const { index, config } = load(process.argv[2]);
    const [page, ...phrases] = fs.readFileSync(0, "utf8").split("\n").filter(Boolean);
    const wanted = page.replace(/\.md$/, ".html");
    let problems = 0;
    for (const phrase of phrases) {
        const found = index.search(phrase, config.search_options).slice(0, RESULTS);
        const urls = found.map((each) => config.doc_urls[each.ref]);
        if (!urls.some((url) => url.startsWith(wanted))) {
            console.log(`search for "${phrase}": ${wanted} is not among the first results: ${urls.join(", ") || "none"}`);
            problems += 1;
        }
    }
    console.log(`search of the rendered site: ${phrases.length} phrases, ${problems} problems`);
    process.exit(problems ? 1 : 0);
}

main();
