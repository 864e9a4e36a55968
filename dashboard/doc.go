// Package dashboard serves the web page that shows a network and its quality of
// service. It embeds the files that "make dashboard" builds from the TypeScript in
// src.
//
// The built files are in the repository, so that building the program needs no
// Node.js. A test builds them again and compares the result with them. The page is an
// ordinary client of the REST API: it loads nothing from other servers, and contains
// no secret.
package dashboard
