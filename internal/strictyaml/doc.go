// Package strictyaml reads the YAML of all files that people write: configurations, contexts,
// the topologies of labs. It hands out a tree of nodes in which nothing can surprise a
// decoder: of bounded size and depth, without aliases, each key plain and once. What is wrong
// is said with file and line, all of it at once, and of an unknown key which one may have been
// meant.
package strictyaml
