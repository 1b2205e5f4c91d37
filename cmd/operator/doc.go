// Package operator contains the commands with which an operator looks after a
// cluster: its status, its members, backups, and the data of stopped nodes.
package operator
