"""Readings of daily text by kind, right value by right value, and what must not be read as that kind."""

import pytest

from oscine.text.clean import clean_text
from oscine.text.english.numerals import in_pairs
from oscine.text.english.scripts import check_script
from oscine.text.frontend import get_frontend

READINGS = {
    "stops before numbers": r"""
He said no. 3 people left               | He said no. three people left
I told him no. 5 was enough.            | I told him no. five was enough.
The answer is no. 5 people objected.    | The answer is no. five people objected.
No. 3 people left.                      | No. three people left.
Flight no. 3, No. 5, she is no. 1       | Flight number three, Number five, she is number one
The no. 1 reason, problem no. 2 of 5    | The number one reason, problem number two of five
FLIGHT NO. 3                            | flight number three
He is still no. 1, no. 2 men's seed     | He is still number one, number two men's seed
Wait a sec. 3 more are coming.          | Wait a sec. three more are coming.
See sec. 3 and fig. 2.                  | See section three and figure two.
She likes modern art. 3 people agreed.  | She likes modern art. three people agreed.
See art. 5 of the treaty.               | See article five of the treaty.
He has a PhD. 3 friends came.           | He has a P H D. three friends came.
They ate cake etc. 5 hours later.       | They ate cake etcetera. five hours later.
He works at Acme Inc. 3 people left.    | He works at Acme Incorporated. three people left.
""",
    "all in capitals": r"""
IN THE US                               | in the U S
THE US AND THE UK                       | the U S and the U K
US PRESIDENT IN LA                      | U S president in L A
HELP US, US AND THEM                    | help us, us and them
TELL US MORE                            | tell us more
IT IS WHAT IT IS                        | it is what it is
CALL THE IT DEPARTMENT                  | call the I T department
WE LED THE WAY                          | we led the way
THE LED LIGHTS ARE ON                   | the L E D lights are on
UPS AND DOWNS                           | ups and downs
JOHN AND MARY WENT HOME                 | john and mary went home
HER PC DIED                             | her P C died
IRS TAX TIPS                            | I R S tax tips
BMW CARS                                | B M W cars
POP STAR, ICE AGE                       | pop star, ice age
IT'S OVER                               | it's over
THIS IS A TEST                          | this is a test
VITAMIN A IS GOOD, PLAN A WORKS         | vitamin A is good, plan A works
MY AI FRIEND SHOWS AN ID                | my A I friend shows an I D
HTTP API                                | H T T P A P I
""",
    "capitals in other text": r"""
The song IT IS OVER is good.            | The song it is over is good.
The sign says DO NOT ENTER, KEEP OUT.   | The sign says do not enter, keep out.
She said I AM FINE.                     | She said I am fine.
He works for the FBI AND CIA.           | He works for the F B I and C I A.
Use HTML, CSS AND PHP.                  | Use H T M L, C S S and P H P.
The CEO of GE AND the CFO of HP left.   | The C E O of G E and the C F O of H P left.
He is in the US.                        | He is in the U S.
""",
    "dates": r"""
2024/07/04                              | July fourth, twenty twenty four
07-04-2024                              | July fourth, twenty twenty four
04.07.24                                | July fourth, twenty twenty four
5-May-2024                              | May fifth, twenty twenty four
12/31/99                                | December thirty first, nineteen ninety nine
2024-07-04T14:30:00Z                    | July fourth, twenty twenty four, fourteen thirty U T C
2024-07-04T14:30+02:00                  | July fourth, twenty twenty four, fourteen thirty U T C plus two
May 5-7, 2024                           | May fifth to seventh, twenty twenty four
the week of Jan 3-9                     | the week of January third to ninth
10-12 Oct                               | the tenth to the twelfth of October
the 4th-6th of July                     | the fourth to the sixth of July
Jan. 5-Feb. 3                           | January fifth to February third
On Monday 12/25 we rest.                | On Monday December twenty fifth we rest.
It is due 3/4.                          | It is due March fourth.
On 3/4 cup, by 10/12 of them            | On three quarters cup, by ten twelfths of them
In May 20 people came.                  | In May twenty people came.
On May 5 shares fell, jan 5, APRIL 5    | On May fifth shares fell, January fifth, April fifth
based on 3/4 of it                      | based on three quarters of it
Sat, 3 Feb 2024                         | Saturday, the third of February, twenty twenty four
I came on Fri. He left.                 | I came on Friday. He left.
Closed on Sat.                          | Closed on Saturday.
Sat on the mat. Sun is hot.             | Sat on the mat. Sun is hot.
Closed Mon.-Fri.                        | Closed Monday to Friday.
Jan-Mar results                         | January to March results
In 1066 it was so.                      | In ten sixty six it was so.
highs in the low 30s, the 00s           | highs in the low thirties, the two thousands
season 2020/21                          | season twenty twenty slash twenty one
""",
    "times": r"""
at 7.30pm                               | at seven thirty P M
8 a.m.-5 p.m.                           | eight A M to five P M.
10pm-2am                                | ten P M to two A M
at 9am/10am                             | at nine A M slash ten A M
1h 30m                                  | one hour thirty minutes
2h30                                    | two hours thirty minutes
5m 30s                                  | five minutes thirty seconds
1:30:00                                 | one thirty
12:75                                   | twelve to seventy five
10:30-11:45 a.m.                        | ten thirty to eleven forty five A M.
at 1430 hours                           | at fourteen thirty hours
at 3 PM EST.                            | at three P M E S T.
""",
    "money": r"""
a $5 bill                               | a five dollar bill
The $64,000 question                    | The sixty four thousand dollar question
a $10-million deal                      | a ten million dollar deal
the $5 was mine                         | the five dollars was mine
$5m-$6m                                 | five to six million dollars
$900k-$1m                               | nine hundred thousand to one million dollars
A$40, C$5, US$3, R$2                    | forty Australian dollars, five Canadian dollars, three dollars, two reais
$5 USD                                  | five U S dollars
₩5000, ₽300, ₺20                        | five thousand won, three hundred rubles, twenty lira
5 kr                                    | five kronor
20 SEK                                  | twenty Swedish kronor
€1.234,56                               | one thousand two hundred thirty four euros and fifty six cents
10.000 € or €10.000                     | ten thousand euros or ten thousand euros
12,50 €                                 | twelve euros and fifty cents
$5/hr, $3/lb, $2/each                   | five dollars per hour, three dollars per pound, two dollars each
$AAPL rose                              | A A P L rose
""",
    "measures": r"""
a 5kg bag                               | a five kilogram bag
the 10 km run                           | the ten kilometer run
I ran the 5 km in 20 min                | I ran the five kilometers in twenty minutes
100m sprint                             | one hundred meter sprint
a 27" monitor                           | a twenty seven inch monitor
12" record, 3" wide                     | twelve inch record, three inches wide
He said "give me 5" again               | He said give me five again
a 6" x 4" print                         | a six by four inch print
32 in. wide                             | thirty two inches wide
1 in.                                   | one inch.
5 in of rain                            | five inches of rain
3 in my bag, 1 in 5                     | three in my bag, one in five
5 ft 10 in                              | five feet ten inches
6 ft. tall                              | six feet tall
8 oz. Then go                           | eight ounces. Then go
5 sq. ft. and 12 fl. oz. of it          | five square feet and twelve fluid ounces of it
5 mi away, 10 l of milk, 0.5 s          | five miles away, ten liters of milk, zero point five seconds
9.8 m/s²                                | nine point eight meters per second squared
50kg/m3                                 | fifty kilograms per cubic meter
20 mg/dL                                | twenty milligrams per deciliter
km/h and mph, per kg                    | kilometers per hour and miles per hour, per kilogram
20 x 30 cm                              | twenty by thirty centimeters
8 x 10 in. frame                        | eight by ten inches frame
1920x1080                               | nineteen twenty by ten eighty
1.5m people                             | one point five million people
1.5m tall                               | one point five meters tall
2B views                                | two billion views
a 5k run                                | a five K run
3/4 tsp salt and 1 1/2 oz               | three quarters teaspoon salt and one and a half ounces
100s of people, a 30s break             | hundreds of people, a thirty second break
29,029' high                            | twenty nine thousand twenty nine feet high
120/80 mmHg                             | one hundred twenty over eighty millimeters of mercury
802.11ac                                | eight hundred two point one one A C
""",
    "numbers": r"""
1 000 000                               | one million
10 000 people                           | ten thousand people
1'000                                   | one thousand
1.234,56                                | one thousand two hundred thirty four point five six
3,5 kg and 2,5%                         | three point five kilograms and two point five percent
1,5 million                             | one point five million
1,2,3                                   | one, two, three
6.02e23                                 | six point zero two times ten to the twenty three
6.02×10^23                              | six point zero two times ten to the twenty three
10⁻³ and 10⁶                            | ten to the minus three and ten to the six
a footnote¹ here.² Then                 | a footnote here. Then
x^2 + y^3                               | x squared plus y cubed
7 × 8 = 56                              | seven times eight equals fifty six
10 / 2 = 5                              | ten divided by two equals five
10/10, 8.5/10                           | ten out of ten, eight point five out of ten
I give it a 7/10.                       | I give it a seven out of ten.
60/40 and 2/40                          | sixty forty and two over forty
1 - 2 = -1, 5-3=2                       | one minus two equals minus one, five minus three equals two
3/32                                    | three thirty seconds
5* hotel                                | five star hotel
f(x)                                    | f of x
a != b, c -> d                          | a is not equal to b, c to d
""",
    "codes": r"""
020 7946 0958                           | zero two zero, seven nine four six, zero nine five eight
0800 123 4567                           | zero eight zero zero, one two three, four five six seven
+44 (0)20 7946 0958                     | plus four four, zero, two zero, seven nine four six, zero nine five eight
01 23 45 67 89                          | zero one, two three, four five, six seven, eight nine
978-3-16-148410-0                       | nine seven eight, three, one six, one four eight four one zero, zero
a 4-4-2 formation                       | a four four two formation
My PIN is 1234.                         | My PIN is one two three four.
zip code 90210                          | zip code nine zero two one zero
order number 5512                       | order number five five one two
ext. 204                                | extension two zero four
room 101                                | room one oh one
flight BA 2490                          | flight B A twenty four ninety
a Boeing 747                            | a Boeing seven forty seven
Highway 500 and Route 66                | Highway five hundred and Route sixty six
an RTX 4090                             | an R T X forty ninety
10.0.0.1:8080                           | one zero dot zero dot zero dot one colon eighty eighty
5558675309 or 1000000000                | five five five eight six seven five three zero nine or one billion
localhost:3000                          | localhost colon three thousand
""",
    "abbreviations": r"""
There are no 5 star hotels.             | There are no five star hotels.
the art 5 years ago                     | the art five years ago
no. 5 and nos. 3-4                      | number five and numbers three to four
S&P 500 and P2P                         | S and P five hundred and P two P
10 Elm Ave., Apt. 5                     | ten Elm Avenue, Apartment five
123 N. Main St. is                      | one hundred twenty three North Main Street is
on 5th St. NW                           | on fifth Street Northwest
Austin, TX                              | Austin, Texas
Fine, OK.                               | Fine, okay.
Beverly Hills, CA 90210                 | Beverly Hills, California nine zero two one zero
on St. Peter's St. today                | on Saint Peter's Street today
E. coli, C. elegans                     | E coli, C elegans
Halo (feat. Drake)                      | Halo, featuring Drake
It was a great feat. He won.            | It was a great feat. He won.
Apple Inc said                          | Apple Incorporated said
eg apples, ie fruit                     | for example apples, that is fruit
Roe v. Wade, Op. 67                     | Roe versus Wade, Opus sixty seven
cont'd, gr8, thx                        | continued, great, thanks
TL;DR, aka                              | T L D R, A K A
""",
    "Roman numerals": r"""
Charles III's coronation                | Charles the third's coronation
I, II, III and IV                       | one, two, three and four
an IV drip for an MD                    | an I V drip for an M D
I think, and I or you                   | I think, and I or you
Act IV, Scene iii                       | Act four, Scene three
Vol. II                                 | Volume two
WWII and WW1                            | World War two and World War one
the XXI century                         | the twenty first century
""",
    "letters": r"""
CO2, H2O, IPv4                          | C O two, H two O, I P V four
CI/CD and AC/DC                         | C I slash C D and A C slash D C
xkcd, a BSc                             | X K C D, a B S C
the WHO asks WHO                        | the W H O asks who
JSON and FBI                            | JSON and F B I
brrr, hmm                               | brrr, hmm
an A- and a B+                          | an A minus and a B plus
s/he or (s)he, person(s)                | she or he or she or he, persons
either/or                               | either or
2πr                                     | two pi r
""",
    "names of files": r"""
file.tar.gz                             | file dot tar dot G Z
report_final.PDF                        | report final dot P D F
/usr/local/bin                          | slash usr slash local slash bin
C:\Windows                              | C backslash Windows
.NET or .com                            | dot net or dot com
bbc.co.uk                               | B B C dot co dot U K
bit.ly/3x                               | bit dot L Y slash three x
example.com:8080/x                      | example dot com colon eighty eighty slash x
so he said.Then                         | so he said. Then
""",
    "faces": r"""
Fine :) by me :D                        | Fine by me
I <3 you                                | I heart you
x <3                                    | x less than three
""",
}
TABLE = [
    pytest.param(*(part.strip() for part in row.split(" | ")), id=f"{kind}: {row.split('|')[0].strip()[:24]}")
    for kind, rows in READINGS.items()
    for row in rows.strip("\n").split("\n")
]


@pytest.mark.parametrize(("written", "spoken"), TABLE)
def test_reading(written: str, spoken: str) -> None:
    normalize = get_frontend("english-phonemes").normalize
    assert normalize(clean_text(written)) == spoken
    assert normalize(spoken) == spoken


@pytest.mark.parametrize(
    ("figures", "words"),
    [("42", "forty two"), ("747", "seven forty seven"), ("101", "one oh one"), ("500", "five hundred"),
     ("1205", "twelve oh five"), ("2000", "two thousand"), ("007", "zero zero seven"),
     ("12345", "one two three four five")],
)  # fmt: skip
def test_figures_in_pairs(figures: str, words: str) -> None:
    assert in_pairs(figures) == words


def test_a_lone_greek_letter_is_no_foreign_script() -> None:
    check_script("π")
    assert get_frontend("english-phonemes").to_symbols("π") == "pˈI."
