// Package strictyaml parses all YAML files that people write: configurations, contexts, and
// topologies of labs. It returns a tree of nodes that is safe to decode: its size and depth are
// bounded, it has no aliases, and each key is a plain scalar that occurs once. It reports all
// problems of a file at once, with file and line, and suggests the known key that may have been
// meant by an unknown one.
package strictyaml
