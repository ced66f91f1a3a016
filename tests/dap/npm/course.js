// A whole debugging session, played by Microsoft's client for testing adapters.
//
//   node course.js '{"port": 5678, "configuration": {"name": "mesh", ...}, "path": "/abs/file.py", "line": 12,
//                    "expression": "answer", "children": 4, "rootStops": false, "startDebugging": true}'
//
// It attaches, and attaches to each process that is announced, at the port that its configuration names, or at the same
// one. When `children` of them are attached it writes the line "attached": the debuggee may begin. It waits for a stop
// in each of them (and in the root session, if that one stops), looks, steps, goes on, and writes "looked". When it reads
// a line it says goodbye everywhere, and writes one line of JSON:
//
//   {"announced": ["startDebugging", ...], "sessions": [{"name", "verified", "reason", "line", "value", "threads",
//    "stepped", "ended"}, ...]}
//
// The sessions are in the order of their names. Whatever fails is told on standard error, and the exit code is 1.
'use strict';
const { EventEmitter, once } = require('events');
const { DebugClient } = require('@vscode/debugadapter-testsupport');

const wanted = JSON.parse(process.argv[2]);
const sessions = [];
const announced = [];
const news = new EventEmitter().setMaxListeners(0);

function fail(error) {
    console.error(error.stack || String(error));
    process.exit(1);
}

// Its base class takes all that is no event for an answer; what the adapter asks for comes by here.
class Client extends DebugClient {
    dispatch(text) {
        const message = JSON.parse(text);
        if (message.type !== 'request') {
            super.dispatch(text);
        } else if (message.command === 'startDebugging' && wanted.startDebugging) {
            const { configuration, request } = message.arguments;
            meet({ ...configuration, request }, message.command).then(() => this.answer(message, true), fail);
        } else {
            this.answer(message, false, `this client does not know ${message.command}`);
        }
    }

    answer(request, success, message) {
        const { seq: request_seq, command } = request;
        const json = JSON.stringify({ seq: this.sequence++, type: 'response', request_seq, command, success, message });
        this.outputStream.write(`Content-Length: ${Buffer.byteLength(json)}\r\n\r\n${json}`);
    }
}

class Session {
    constructor(configuration) {
        this.configuration = configuration;
        this.facts = { name: configuration.name };
        this.client = new Client('', '', 'debugpy');
        this.stops = [];
        this.client.on('stopped', (event) => {
            this.stops.push(event.body);
            news.emit('told');
        });
        this.client.on('debugpyAttach', (event) => meet(event.body, 'debugpyAttach').catch(fail));
    }

    async attach() {
        const { client, configuration, facts } = this;
        await client.start(configuration.connect ? configuration.connect.port : wanted.port);
        // It listens before it asks: whoever listens later has missed it.
        const initialized = client.waitForEvent('initialized');
        await client.initializeRequest({
            clientID: 'testsupport', adapterID: 'debugpy', pathFormat: 'path', linesStartAt1: true, columnsStartAt1: true,
            supportsVariableType: true, supportsStartDebuggingRequest: wanted.startDebugging,
        });
        const attached = client.attachRequest(configuration);
        await Promise.race([initialized, attached.then(() => initialized)]);
        const answer = await client.setBreakpointsRequest({
            source: { path: wanted.path }, breakpoints: [{ line: wanted.line }],
        });
        facts.verified = answer.body.breakpoints.map((one) => one.verified);
        await client.setExceptionBreakpointsRequest({ filters: [] });
        await client.configurationDoneRequest({});
        await attached;
        this.attached = true;
        news.emit('told');
    }

    // The next stop that nobody has looked at yet, with its innermost stack frame.
    async stopped() {
        await until(() => this.stops.length);
        const { threadId, reason } = this.stops.shift();
        const stack = await this.client.stackTraceRequest({ threadId, startFrame: 0, levels: 1 });
        return { threadId, reason, frame: stack.body.stackFrames[0] };
    }

    async look() {
        const { client, facts } = this;
        const { threadId, reason, frame } = await this.stopped();
        const value = await client.evaluateRequest({ expression: wanted.expression, frameId: frame.id, context: 'watch' });
        const threads = await client.threadsRequest();
        Object.assign(facts, {
            reason, line: frame.line, value: value.body.result, threads: threads.body.threads.map((one) => one.name),
        });
        await client.stepOutRequest({ threadId });
        const stepped = await this.stopped();
        facts.stepped = stepped.frame.name;
        await client.continueRequest({ threadId });
    }

    async leave() {
        const ended = this.client.waitForEvent('terminated');
        await this.client.disconnectRequest({ terminateDebuggee: false });
        await ended;
        this.facts.ended = true;
        this.client.stopAdapter();
    }
}

async function meet(configuration, how) {
    if (how) {
        announced.push(how);
    }
    const session = new Session(configuration);
    sessions.push(session);
    await session.attach();
}

// Resolves as soon as `condition` holds; it is asked again whenever something was told.
async function until(condition) {
    while (!condition()) {
        await once(news, 'told');
    }
}

async function course() {
    await meet(wanted.configuration, '');
    await until(() => sessions.filter((session) => session.attached).length === 1 + wanted.children);
    console.log('attached');
    const stopping = wanted.rootStops ? sessions : sessions.slice(1);
    await Promise.all(stopping.map((session) => session.look()));
    console.log('looked');
    await once(process.stdin, 'data');
    await Promise.all(sessions.map((session) => session.leave()));
    const facts = sessions.map((session) => session.facts).sort((a, b) => (a.name < b.name ? -1 : 1));
    console.log(JSON.stringify({ announced, sessions: facts }));
    process.exit(0);
}

process.on('unhandledRejection', fail);
process.on('uncaughtException', fail);
course().catch(fail);
