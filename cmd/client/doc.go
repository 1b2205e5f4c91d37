// Package client sends the commands of an operator to the client port of a node.
package client
