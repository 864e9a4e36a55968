// Package dashboard is the page that shows a network and what its quality of
// service does: it embeds the files that "make dashboard" builds from the
// TypeScript in src, and serves them.
//
// The built files are in the repository, so that building the program needs no
// Node.js; a test builds them anew and compares. The page is an ordinary client
// of the REST API: it loads nothing from elsewhere, and holds no secret.
package dashboard
