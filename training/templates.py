"""Sentences of our own for the teacher to read: numbers, dates, times, money, greetings, questions, long sentences.

A template is a string with `{slots}`; each slot is filled at random from a list or by a small function. Numbers are
written out in words, as the engine's own text normaliser hands them to a model.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable

from training import figures

Rng = random.Random


def _words(text: str) -> list[str]:
    return text.split()


def _phrases(text: str) -> list[str]:
    return text.split("|")


NAMES = _words(
    "Anna Ben Carla David Elena Frank Grace Henry Irene James Karen Luis Maria Nathan Olivia Peter Quinn "
    "Rosa Samuel Tara Ursula Victor Wendy Xavier Yara Zoe Arthur Bridget Charles Dorothy Ethan Fiona "
    "George Hannah Ivan Julia"
)
CITIES = _words(
    "Boston Chicago London Paris Madrid Dublin Toronto Sydney Berlin Tokyo Denver Phoenix Seattle "
    "Houston Oslo Vienna Lisbon Geneva Athens Cairo Nairobi Mumbai Bangkok Seoul Portland Atlanta "
    "Montreal Prague Warsaw Rome"
)
DAYS = _words("Monday Tuesday Wednesday Thursday Friday Saturday Sunday")
PLACES = _phrases(
    "the station|the library|the harbor|the market|the hospital|the airport|the bakery|the office|"
    "the old bridge|the museum|the garden|the school yard|the village|the workshop|the theater|"
    "the valley|the kitchen|the beach|the post office|the corner store|the river bank|the mountain hut|"
    "the town square|the parking lot"
)
THINGS = _phrases(
    "the blue umbrella|a wooden chair|the broken clock|her passport|his old guitar|the spare key|"
    "a box of matches|the yellow notebook|a pair of gloves|the garden hose|an empty bottle|the newspaper|"
    "a bunch of grapes|the ladder|my left shoe|the photograph|a jar of honey|the telescope|your jacket|"
    "the birthday cake|a roll of tape|the map|an orange scarf|the wedding ring|a bag of flour|the laptop|"
    "the fishing rod|a cup of strong coffee|the violin"
)
ACTIONS = (  # infinitive, past
    "open the window|opened the window",
    "feed the chickens|fed the chickens",
    "fix the leaking pipe|fixed the leaking pipe",
    "write a long letter|wrote a long letter",
    "climb over the fence|climbed over the fence",
    "choose a different color|chose a different color",
    "measure the width of the door|measured the width of the door",
    "lose the car keys|lost the car keys",
    "bring some fresh bread|brought some fresh bread",
    "finish the last chapter|finished the last chapter",
    "switch off the lights|switched off the lights",
    "teach the children to swim|taught the children to swim",
    "paint the ceiling white|painted the ceiling white",
    "catch the early train|caught the early train",
    "answer every question|answered every question",
    "throw away the boxes|threw away the boxes",
    "borrow a sharp knife|borrowed a sharp knife",
    "share the good news|shared the good news",
    "plant two apple trees|planted two apple trees",
    "watch the ships come in|watched the ships come in",
    "hear a strange noise|heard a strange noise",
    "cook enough soup for everyone|cooked enough soup for everyone",
    "explain the rules again|explained the rules again",
    "push the piano across the hall|pushed the piano across the hall",
    "polish the silver spoons|polished the silver spoons",
    "join the evening class|joined the evening class",
)
ADJECTIVES = _words(
    "quiet cheerful enormous narrow delicious fragile dangerous clever dusty generous hollow impatient "
    "jealous lonely modern nervous peaceful rough shallow thick unusual vivid warm useful bright crowded "
    "smooth"
)
WEATHER = _phrases(
    "it rained all night|the wind was very cold|the sun came out at last|thick fog covered the road|"
    "the snow began to melt|the sky turned dark purple|a storm was on its way|the air smelled of smoke|"
    "the streets were full of people|nobody else was awake|the power had gone out|"
    "the music was far too loud"
)
WORTHS = _phrases(
    "the ticket|this lamp|a new battery|the repair|lunch for two|the whole trip|a gallon of milk|the monthly rent"
)
UNITS = _words("miles kilometers pounds minutes degrees gallons inches feet hours meters weeks grams liters")
COUNTED = _words("people books bottles houses students tickets letters eggs votes chairs ships pages trees songs")
ABBREVIATIONS = _words("USB GPS PDF CEO BBC FBI NASA ATM DVD HTML NBA ID TV PC UK US EU AI UFO")

TEMPLATES: dict[str, tuple[str, ...]] = {
    "number": (
        "There are {count} {counted} in {place}.",
        "{Number}.",
        "The answer is {number}.",
        "About {number} {counted} were counted, {number} more than last time.",
        "{Worth} costs {money}.",
        "{name} paid {money} for {thing}.",
        "I owe you {money}.",
        "Only {percent} of the {counted} were left.",
        "Prices rose by {percent}, then fell by {percent}.",
        "The distance to {city} is {number} {unit}.",
        "It weighs {decimal} pounds, give or take.",
        "Turn to page {small}, line {small}.",
        "My number is {phone}.",
        "Please call {phone} after {clock}.",
        "Room {room} is on the {ordinal} floor.",
        "Add {fraction} of a cup of sugar and {small} eggs.",
        "{Fraction} of the class chose {ordinal} place.",
        "She finished {ordinal} out of {number}.",
        "Flight {digits} to {city} leaves from gate {small}.",
        "{Small} plus {small} is more than {small}.",
        "{Small}, {small}, {small}, {small}.",
        "The code is {digits}.",
        "Chapter {small}: {action}.",
        "The temperature dropped to {small} degrees below zero.",
        "We drove {number} {unit} in {small} hours.",
        "He scored {small} points, and she scored {small}.",
    ),
    "date": (
        "Today is {day}, {month} {ordinal_day}.",
        "{name} was born on the {ordinal_day} of {month}, {year}.",
        "The meeting moved from {day} to {day}, the {ordinal_day}.",
        "On {month} {ordinal_day}, {year}, {name} arrived in {city}.",
        "It was built in {year} and closed in {year}.",
        "We will be back in {month} {year}.",
        "The deadline is {day}, {month} {ordinal_day}, {year}.",
        "In {year} there were {number} {counted} in {city}.",
        "School starts on the {ordinal_day} of {month}.",
        "Between {month} and {month} the road stays closed.",
        "{month} {ordinal_day} falls on a {day} this year.",
        "Since {year}, {name} has lived near {city}.",
        "Please pay before the {ordinal_day}.",
    ),
    "time": (
        "It is {clock}.",
        "The train leaves at {clock} {half}.",
        "Wake me at {clock} in the morning.",
        "It is {digital} a.m.",
        "Call me at {digital} p.m.",
        "{name} called at {clock} and again at {clock}.",
        "The store is open from {hour} to {hour}.",
        "Let's meet at {place} at {clock} on {day}.",
        "Dinner is at {clock} {half}, not at {clock}.",
        "It took {small} minutes and {small} seconds.",
        "My flight lands in {city} at {clock} {half}.",
        "Set a timer for {small} minutes.",
        "By {clock}, {weather}.",
        "We waited from {clock} until {clock}.",
    ),
    "short": (
        "{opener}.",
        "{opener}, {name}.",
        "{opener}, {closer}.",
        "{closer}, {name}.",
        "{opener}, {closer}, {name}.",
        "{opener}. {Closer}.",
        "{Adjective}.",
        "{Adjective} and {adjective}.",
        "Very {adjective}, {name}.",
        "{Closer}!",
        "{name}!",
        "{name} and {name}.",
        "In {city}.",
        "At {place}.",
        "{Thing}.",
        "Not {adjective}, {adjective}.",
        "On {day}.",
        "{color}.",
    ),
    "question": (
        "Where did {name} leave {thing}?",
        "Did {name} {action}?",
        "Why did you {action}?",
        "Could you please {action} before {day}?",
        "Who {acted} at {place}?",
        "How far is it from {city} to {city}?",
        "How much does {worth} cost?",
        "When will {name} {action}?",
        "Is {place} {adjective} or {adjective}?",
        "What time does {name} leave for {city}?",
        "Have you ever been to {city}?",
        "Would you rather {action}, or {action}?",
        "Do you know whether {name} {acted}?",
        "Which is more {adjective}, {thing} or {thing}?",
        "Are you coming to {place}, {name}?",
        "Whose idea was it to {action}?",
        "Can {thing} really be that {adjective}?",
        "What happened at {place} after {weather}?",
        "Aren't you going to {action}?",
        "Really? {name} {acted}?",
    ),
    "sentence": (
        "{name} {acted} at {place}.",
        "{name} {acted} because {weather}.",
        "When {weather}, {name} {acted}.",
        "I found {thing} behind {place}.",
        "{Thing} looked {adjective} and {adjective}.",
        "Please {action}, and then {action}.",
        "{name} never wanted to {action}, but {name} did.",
        "After {name} {acted}, {weather}.",
        "We should {action} before {name} comes home.",
        "If you {action}, bring {thing} along.",
        "My neighbor gave {name} {thing} as a present.",
        "{name} put {thing} next to {thing}.",
        "The road from {city} to {place} is {adjective}.",
        "Nobody told {name} to {action}!",
        "What a {adjective} day at {place}!",
        "I'd like to {action}, if you don't mind.",
        "She said that {name} had {thing} in the car.",
        "They couldn't {action}, so they sold {thing}.",
    ),
    "long": (
        "{Clause}, and although {weather}, {clause}, while {clause}.",
        "Because {clause} and {clause}, nobody noticed that {clause}, even after {clause}.",
        "When {weather}, {clause}, but as soon as {clause}, everyone agreed that {clause}.",
        "{name} told us that {clause}, that {clause}, and that, before {weather}, {clause}.",
        "If {clause}, then I suppose that {clause}; otherwise, {name} would have to {action}, {action}, and {action}.",
    ),
    "notice": (
        "The {vehicle} to {city} departs from {bay} {small} at {clock}.",
        "The {digital} {vehicle} from {city} will arrive at {bay} {small}.",
        "Passengers for {city}, please wait at {bay} {small}.",
        "Please go to {bay} {small}.",
        "We meet at {bay} {small}, at {clock}.",
        "{Bay} {small} is closed until {day}.",
        "{Bay} {hour}, please.",
        "It stops at {bay} {hour}.",
        "Your {order} will be ready at {clock}.",
        "Your {order} number is {digits}.",
        "Your next {meeting} starts at {digital} on {day}.",
        "Your {meeting} with {name} was moved from {clock} to {clock}.",
        "It is {clock} {half}, and {weather}.",
        "In {count} meters, take {bay} {hour}.",
        "The {device} is on, and the {device} is off.",
        "I have turned the {device} down to {small} percent.",
        "You have {small} new messages, {hour} of them from {name}.",
        "The {device} says {small} degrees.",
    ),
    "letter": (
        "{letters}.",
        "The letter {letter}.",
        "The letter {as_in}.",
        "Plan {letter}, then plan {letter}.",
        "Spell it {letters}.",
        "Press {letter}, not {letter}.",
        "Vitamin {letter}.",
        "{abbreviation}.",
        "The {abbreviation} cable and the {abbreviation} file.",
        "Section {letter}, question {small}.",
    ),
}

OPENERS = _phrases(
    "Yes|No|Okay|Sure|Hello|Hi|Hey|Good morning|Good evening|Good night|Thanks|Thank you|Please|Maybe|"
    "Never|Always|Stop|Wait|Listen|Well|Right|Exactly|Perhaps|Of course|Not yet|Sorry|Excuse me|Welcome|"
    "Goodbye|Oh|Wow|Great|True"
)
CLOSERS = _phrases(
    "I think so|not today|that's fine|go ahead|come in|see you soon|take care|never mind|no problem|"
    "it's over there|I don't know|you're welcome|that's right|sit down|wait for me|what a pity|we agree|"
    "let's go|one moment|after you|any time|it works|be careful|so do I|nothing at all|I'm ready|"
    "all done|keep going|I hope so|don't worry"
)
COLORS = _words("Red Green Blue Purple Orange Yellow Brown Silver Golden Black White Pink")

VEHICLES = _words("train bus ferry flight tram coach plane express shuttle")
BAYS = _words("platform gate track terminal exit door counter stop pier lane bay floor window")
ORDERS = _words("ticket order parcel booking car passport receipt taxi breakfast boarding-pass")
MEETINGS = _words("meeting appointment lesson call interview lunch class reminder")
DEVICES = _words("heating lamp radio television oven dishwasher alarm speaker thermostat kettle printer")

_SLOT = re.compile(r"\{(\w+)\}")


def make(kind: str, rng: Rng) -> str:
    """One text of a kind of `TEMPLATES`, its slots filled from `rng`."""
    return fill(rng.choice(TEMPLATES[kind]), rng)


def fill(template: str, rng: Rng) -> str:
    """`template` with every slot filled; a capitalised slot gives a capitalised filling, a text always begins so."""

    def replace(match: re.Match[str]) -> str:
        slot = match[1]
        value = SLOTS[slot.lower()](rng)
        return value[:1].upper() + value[1:] if slot[0].isupper() else value

    text = _SLOT.sub(replace, template)
    return text[:1].upper() + text[1:]


def _pick(*values: str) -> Callable[[Rng], str]:
    return lambda rng: rng.choice(values)


def _number(rng: Rng) -> str:
    low, high = rng.choice(((0, 99), (100, 999), (1_000, 9_999), (10_000, 2_000_000)))
    value = rng.randint(low, high)
    return figures.cardinal(value - value % 1_000 if high > 9_999 else value, with_and=rng.random() < 0.3)


def _money(rng: Rng) -> str:
    cents = rng.choice((0, 0, rng.randint(1, 99)))
    return figures.money(rng.choice((rng.randint(1, 20), rng.randint(21, 999), rng.randint(1, 90) * 100)), cents)


def _year(rng: Rng) -> str:
    return figures.year(rng.randint(*rng.choice(((1900, 1999), (2000, 2035), (1100, 1899)))))


def _phone(rng: Rng) -> str:
    groups = (rng.randint(100, 999), rng.randint(100, 999), rng.randint(1000, 9999))
    zero = rng.choice(("zero", "oh"))
    return ", ".join(figures.digits(str(group), zero=zero) for group in groups[rng.randint(0, 1) :])


def _clock(rng: Rng) -> str:
    minute = rng.choice((0, 5, 10, 15, 20, 25, 30, 35, 40, 45, 50, 55, rng.randint(1, 59)))
    return figures.clock(rng.randint(1, 12), minute, "spoken" if rng.random() < 0.3 else "digital")


def _fraction(rng: Rng) -> str:
    bottom = rng.randint(2, 10)
    return figures.fraction(rng.randint(1, bottom - 1), bottom)


def _as_in(rng: Rng) -> str:
    name = rng.choice(NAMES)
    return f"{name[0]}, as in {name}"


def _clause(rng: Rng) -> str:
    return fill(rng.choice(("{name} {acted}", "{name} {acted} at {place}", "{thing} was still at {place}")), rng)


def _lowered_clause(rng: Rng) -> str:
    text = _clause(rng)
    return text if text.split()[0] in NAMES else text[:1].lower() + text[1:]


SLOTS: dict[str, Callable[[Rng], str]] = {
    "name": _pick(*NAMES),
    "city": _pick(*CITIES),
    "day": _pick(*DAYS),
    "month": _pick(*figures.MONTHS),
    "place": _pick(*PLACES),
    "thing": _pick(*THINGS),
    "action": lambda rng: rng.choice(ACTIONS).split("|")[0],
    "acted": lambda rng: rng.choice(ACTIONS).split("|")[1],
    "adjective": _pick(*ADJECTIVES),
    "weather": _pick(*WEATHER),
    "worth": _pick(*WORTHS),
    "unit": _pick(*UNITS),
    "counted": _pick(*COUNTED),
    "abbreviation": _pick(*ABBREVIATIONS),
    "opener": _pick(*OPENERS),
    "closer": _pick(*CLOSERS),
    "color": _pick(*COLORS),
    "vehicle": _pick(*VEHICLES),
    "bay": _pick(*BAYS),
    "order": _pick(*ORDERS),
    "meeting": _pick(*MEETINGS),
    "device": _pick(*DEVICES),
    "clause": _lowered_clause,
    "number": _number,
    "count": lambda rng: figures.cardinal(rng.randint(2, 400), with_and=rng.random() < 0.3),
    "small": lambda rng: figures.cardinal(rng.randint(2, 99)),
    "hour": lambda rng: figures.cardinal(rng.randint(1, 12)),
    "room": lambda rng: figures.clock(rng.randint(1, 9), rng.randint(1, 59)),
    "ordinal": lambda rng: figures.ordinal(rng.randint(1, 40)),
    "ordinal_day": lambda rng: figures.ordinal(rng.randint(1, 31)),
    "year": _year,
    "money": _money,
    "percent": lambda rng: f"{figures.cardinal(rng.randint(1, 100))} percent",
    "decimal": lambda rng: figures.decimal(f"{rng.randint(0, 99)}.{rng.randint(1, 99)}"),
    "phone": _phone,
    "digits": lambda rng: figures.digits(str(rng.randint(100, 99_999))),
    "clock": _clock,
    "digital": lambda rng: figures.clock(rng.randint(1, 12), rng.randint(1, 59)),
    "half": _pick("in the morning", "in the evening", "tomorrow", "sharp"),
    "fraction": _fraction,
    "letter": lambda rng: rng.choice("ABCDEFGHIJKLMNOPQRSTUVWXYZ"),
    "as_in": _as_in,
    "letters": lambda rng: ", ".join(rng.sample("ABCDEFGHIJKLMNOPQRSTUVWXYZ", rng.randint(1, 5))),
}
